"""A lower bound on epsilon from one run with canaries.

Steinke, Nasr and Jagielski, Privacy auditing with one (1) training run, NeurIPS 2023. A coin decides for each of
m canaries whether it is included. The attacker sees the releases, guesses for r canaries whether they were included,
and is right v times. If training is (epsilon, delta)-private for one canary, the probability of this is at most

    P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i,   W ~ Binomial(r, e^epsilon / (1 + e^epsilon))

(their Theorem 5.2). The largest epsilon for which this is below 5 % is refuted with a confidence of 95 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedotp._values import require

_LEAST_GUESSES = 16  # fewer cannot refute much: 16 of 16 are an epsilon of 1.4
_MOST_CANDIDATES = 5
_STEPS = 50  # bisection steps

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon at `delta`.

    Attributes:
        epsilon: the lower bound, valid with probability `confidence`.
        canaries: m, the number of canaries.
        included: the number of included canaries.
        guesses: r, the number of guesses.
        right: v, the number of right guesses.
    """

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    included: int
    guesses: int
    right: int


def epsilon_from_below(
    scores: Floats, included: Bools, delta: float, *, confidence: float = 0.95, candidates: Sequence[int] = ()
) -> Bound:
    """Compute the lower bound from the `scores` (m,) of canaries, high for those that look `included` (m,).

    r guesses are for the r/2 highest and the r/2 lowest scores. `candidates` are the values of r to try, by default m,
    m/2, m/4 ...; they must not depend on the scores.
    """
    require(0 < confidence < 1, "confidence", confidence, "in (0, 1), for example 0.95")
    require(0 <= delta < 1, "delta", delta, "in [0, 1), for example 1e-5")
    m = len(scores)
    halves = [m >> i for i in range(_MOST_CANDIDATES) if m >> i >= _LEAST_GUESSES]
    tried = tuple(candidates or halves or ([m] if m else []))
    level = (1 - confidence) / max(len(tried), 1)
    order = np.argsort(-scores, kind="stable")
    best = Bound(0.0, delta, confidence, m, int(included.sum()), 0, 0)
    for r in tried:
        high, low = order[: r - r // 2], order[m - r // 2 :]
        right = int(included[high].sum() + (~included[low]).sum())
        found = refuted(m, r, right, delta, level)
        if found > best.epsilon or not best.guesses:
            best = Bound(found, delta, confidence, m, best.included, r, right)
    return best


def refuted(m: int, guesses: int, right: int, delta: float, level: float) -> float:
    """Return the largest epsilon at which at least `right` right guesses have a probability below `level`, or 0."""

    def is_refuted(epsilon: float) -> bool:
        return luck(m, guesses, right, epsilon, delta) < level

    if not guesses or not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high):
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def luck(m: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least `right` right guesses under (epsilon, delta) from above."""
    chances = _binomial(guesses, epsilon)  # (guesses + 1,)
    just_below = chances[:right][::-1].cumsum() / np.arange(1, right + 1)  # P[v > W >= v - i] / i for i = 1, 2, ...
    return min(1.0, float(chances[right:].sum() + 2 * m * delta * just_below.max(initial=0)))


def _binomial(n: int, epsilon: float) -> Floats:
    """Compute P[W = w] for w = 0 ... n, the true answers of randomised response: the most that epsilon allows."""
    log_factorial = np.concatenate([[0.0], np.log(np.arange(1, n + 1)).cumsum()])
    w = np.arange(n + 1)
    log_true, log_false = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    ways = log_factorial[n] - log_factorial - log_factorial[::-1]
    return np.asarray(np.exp(ways + w * log_true + (n - w) * log_false))
