"""How much privacy was lost at least: a lower bound on epsilon from one run with canaries.

Steinke, Nasr and Jagielski, Privacy auditing with one (1) training run, NeurIPS 2023. A coin decides for each of
m canaries whether it is trained on. The attacker sees what was released, guesses for r of them whether they were in,
and is right v times. If training is (epsilon, delta)-private for one canary more or less, the probability of that is

    P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i,   W ~ Binomial(r, e^epsilon / (1 + e^epsilon)),

at most (their Theorem 5.2). The largest epsilon for which this is below 5 % is refuted, with a confidence of 95 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedotp._values import require

_LEAST_GUESSES = 16  # fewer cannot refute much: 16 of 16 are an epsilon of 1.4
_MOST_CANDIDATES = 5
_STEPS = 50  # of the bisection

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon at `delta`.

    Attributes:
        epsilon: with probability `confidence`, no smaller one is true.
        canaries: m, how many there were.
        included: of them, those that were in training.
        guesses: r, on how many of them something was guessed.
        right: v, how many of these guesses were right.
        candidates: the numbers of guesses among which this one was chosen by the outcome; each had to hold with so much
            more confidence that the choice is paid for (Bonferroni).
    """

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    included: int
    guesses: int
    right: int
    candidates: tuple[int, ...]


def epsilon_from_below(
    scores: Floats, included: Bools, delta: float, *, confidence: float = 0.95, candidates: Sequence[int] = ()
) -> Bound:
    """The lower bound that the `scores` (m,) of canaries give, high for those that look `included` (m,).

    A number of guesses r is spent on the r/2 highest and the r/2 lowest scores. `candidates` are the numbers that are
    tried, all of them, half of them and so on if not given; they must not depend on the scores.
    """
    require(0 < confidence < 1, "confidence", confidence, "in (0, 1), for example 0.95")
    require(0 <= delta < 1, "delta", delta, "in [0, 1), for example 1e-5")
    m = len(scores)
    tried = tuple(candidates) or _halves(m)
    level = (1 - confidence) / max(len(tried), 1)
    order = np.argsort(-scores, kind="stable")
    best = Bound(0.0, delta, confidence, m, int(included.sum()), 0, 0, tried)
    for r in tried:
        high, low = order[: r - r // 2], order[m - r // 2 :]
        right = int(included[high].sum() + (~included[low]).sum())
        found = refuted(m, r, right, delta, level)
        if found > best.epsilon or not best.guesses:
            best = Bound(found, delta, confidence, m, best.included, r, right, tried)
    return best


def _halves(m: int) -> tuple[int, ...]:
    found = [m >> i for i in range(_MOST_CANDIDATES) if m >> i >= _LEAST_GUESSES]
    return tuple(found or ([m] if m else []))


def refuted(m: int, guesses: int, right: int, delta: float, level: float) -> float:
    """The largest epsilon under which so many right guesses have a probability below `level`; 0 if there is none."""

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
    """The most that the probability of `right` guesses or more can be under (epsilon, delta)."""
    chances = _binomial(guesses, epsilon)  # (guesses + 1,)
    just_below = chances[:right][::-1].cumsum() / np.arange(1, right + 1)  # P[v > W >= v - i] / i for i = 1, 2, ...
    return min(1.0, float(chances[right:].sum() + 2 * m * delta * just_below.max(initial=0)))


def _binomial(n: int, epsilon: float) -> Floats:
    """P[W = w] for w = 0 ... n: how often randomized response answers truthfully, the most that epsilon allows."""
    log_factorial = np.concatenate([[0.0], np.log(np.arange(1, n + 1)).cumsum()])
    w = np.arange(n + 1)
    log_true, log_false = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    ways = log_factorial[n] - log_factorial - log_factorial[::-1]
    return np.asarray(np.exp(ways + w * log_true + (n - w) * log_false))
