"""Membership inference: whether a score separates training images (members) from other images of the same client.

An image's score is high if it looks like a member. Members are compared only with other images of their own client, so
that differences between clients are not mistaken for membership. Intervals are bootstrap intervals that resample every
client's members and others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Scores = tuple[Floats, Floats]
"""Scores of one client: of members (m,) and of others (n,)."""

_CHUNK = 4_000_000  # values in memory at once
_LARGE = 500.0  # an epsilon without guarantee whose exponential is finite


@dataclass(frozen=True)
class Estimate:
    """A number and its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, drawn: Floats, confidence: float) -> "Estimate":
        """Take the interval that contains the share `confidence` of the values `drawn`."""
        low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
        return cls(float(value), float(low), float(high))


@dataclass(frozen=True)
class Separation:
    """How well scores separate members from others.

    Attributes:
        auc: the probability that a member has a higher score than another image of its client; 0.5 is chance. The mean
            over clients is weighted by m n / (m + n), as in van Elteren's test.
        tpr: true-positive rates by false-positive rate (0.01, 0.1), with one threshold for all clients; a client's
            members and others have equal weight. Rates of less than one image are skipped.
        by_client: the AUC of each client; None for clients without members or without others.
        members: number of members of clients that have both.
        others: number of other images of these clients.
    """

    auc: Estimate
    tpr: dict[float, Estimate]
    by_client: tuple[Estimate | None, ...]
    members: int
    others: int


@dataclass(frozen=True)
class Allowed:
    """The largest mean AUC, and true-positive rates by false-positive rate, that (epsilon, delta) allows any attack."""

    epsilon: float
    delta: float
    auc: float
    tpr: dict[float, float]

    @classmethod
    def by(cls, epsilon: float, delta: float, shares: Sequence[float]) -> "Allowed":
        """Compute the limits from the trade-off between both errors (Kairouz, Oh and Viswanath, ICML 2015)."""
        grid = np.linspace(0, 1, 100_001)
        rates = {share: float(_most_found(np.array(share), epsilon, delta)) for share in shares}
        return cls(epsilon, delta, float(np.trapezoid(_most_found(grid, epsilon, delta), grid)), rates)


def _most_found(share: Floats, epsilon: float, delta: float) -> Floats:
    """Return the largest true-positive rate at the false-positive rate `share`."""
    factor = np.exp(min(epsilon, _LARGE))
    return np.minimum(1, np.minimum(factor * share + delta, 1 - (1 - delta - share) / factor))


def separate(
    clients: Sequence[Scores],
    *,
    seed: int = 0,
    shares: Sequence[float] = (0.01, 0.1),
    confidence: float = 0.95,
    resamples: int = 1000,
) -> Separation | None:
    """Measure how well the scores of `clients` separate members from others; None if no client has both."""
    usable = [i for i, (members, others) in enumerate(clients) if len(members) and len(others)]
    if not usable:
        return None
    scores = [clients[i] for i in usable]
    weights = np.array([len(members) * len(others) / (len(members) + len(others)) for members, others in scores])
    weights /= weights.sum()
    n_members, n_others = (sum(len(one[side]) for one in scores) for side in (0, 1))
    measured = [share for share in shares if share * n_others >= 1]
    once = [(np.ones((len(members), 1)), np.ones((len(others), 1))) for members, others in scores]  # one resample
    parts = [
        (_aucs(scores, counts), _rates(scores, counts, weights, measured))
        for counts in chain([once], _drawn_again(scores, seed, resamples))
    ]
    auc, rate = (np.concatenate(found, 1) for found in zip(*parts, strict=True))  # (clients or shares, 1 + resamples)
    by_client: list[Estimate | None] = [None] * len(clients)
    for i, values in zip(usable, auc, strict=True):
        by_client[i] = Estimate.of(values[0], values[1:], confidence)
    mean = weights @ auc
    return Separation(
        Estimate.of(mean[0], mean[1:], confidence),
        {share: Estimate.of(values[0], values[1:], confidence) for share, values in zip(measured, rate, strict=True)},
        tuple(by_client),
        n_members,
        n_others,
    )


def _drawn_again(scores: Sequence[Scores], seed: int, resamples: int) -> Iterator[list[Scores]]:
    """Count the images in each of the `resamples`, in chunks."""
    stream = np.random.default_rng(seed)
    n = sum(len(members) + len(others) for members, others in scores)
    step = max(1, min(resamples, _CHUNK // n))
    for start in range(0, resamples, step):
        r = min(step, resamples - start)
        yield [(_counts(stream, len(members), r), _counts(stream, len(others), r)) for members, others in scores]


def _counts(stream: np.random.Generator, n: int, resamples: int) -> Floats:
    """Draw n of n images with replacement and count each of them: (n, resamples)."""
    drawn = stream.integers(n, size=(n, resamples)) * resamples + np.arange(resamples)
    return np.bincount(drawn.ravel(), minlength=n * resamples).reshape(n, resamples).astype(np.float64)


def _aucs(scores: Sequence[Scores], counts: Sequence[Scores]) -> Floats:
    """Compute the AUC of each client in each resample: (clients, resamples)."""
    found = []
    for one, times in zip(scores, counts, strict=True):
        members, others = _by_value([one], [times])
        below = others.cumsum(0) - others / 2  # ties count half
        found.append((members * below).sum(0) / (members.sum(0) * others.sum(0)))
    return np.stack(found)


def _rates(scores: Sequence[Scores], counts: Sequence[Scores], weights: Floats, shares: Sequence[float]) -> Floats:
    """Compute true-positive rates at false-positive rates `shares`, with one threshold for all: (shares, resamples)."""
    weighted = [
        (weight * members / len(members), weight * others / len(others))
        for weight, (members, others) in zip(weights, counts, strict=True)
    ]
    members, others = (np.flip(part, 0).cumsum(0) for part in _by_value(scores, weighted))  # from the highest score on
    found = np.empty((len(shares), members.shape[1]))
    for row, share in zip(found, shares, strict=True):
        allowed = (others <= share + 1e-12).sum(0)  # thresholds, none first
        row[:] = np.where(allowed > 0, np.take_along_axis(members, np.maximum(allowed - 1, 0)[None], 0)[0], 0)
    return found


def _by_value(scores: Sequence[Scores], counts: Sequence[Scores]) -> Scores:
    """Count members, and others, by distinct score in ascending order: (values, resamples) each."""
    values = np.concatenate([part for one in scores for part in one])
    is_member = np.concatenate([np.arange(len(members) + len(others)) < len(members) for members, others in scores])
    order = np.argsort(values, kind="stable")
    firsts = np.flatnonzero(np.diff(values[order], prepend=-np.inf) != 0)
    times = np.concatenate([part for one in counts for part in one])[order]
    sides = [np.where(of_side[order, None], times, 0) for of_side in (is_member, ~is_member)]
    if len(firsts) < len(values):
        sides = [np.add.reduceat(side, firsts, axis=0) for side in sides]
    return sides[0], sides[1]
