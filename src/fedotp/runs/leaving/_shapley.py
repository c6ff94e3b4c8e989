"""What each of n players adds to a game: the Shapley value (1953), exactly or from random orders, and leaving one out.

    phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! (v(S + i) - v(S))

is the mean, over all orders in which players can come, of the value that i adds when it comes.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedotp.federation import Floats, Ints, draws
from fedotp.runs.tables import SHARE, bound

Coalition = frozenset[int]
Game = Mapping[Coalition, float]
"""The value of each coalition."""


@dataclass(frozen=True, eq=False)
class Shapley:
    """The value of each player (n,), and the bounds of its 95 % interval: nan if unknown."""

    value: Floats
    low: Floats
    high: Floats


def everybody(n: int) -> Coalition:
    """The coalition of all n players."""
    return frozenset(range(n))


def all_coalitions(n: int) -> list[Coalition]:
    """All 2^n, small ones first."""
    return [frozenset(some) for size in range(n + 1) for some in itertools.combinations(range(n), size)]


def leave_one_out(n: int, game: Game) -> Floats:
    """What is lost without each player: (n,)."""
    whole = everybody(n)
    return np.array([game[whole] - game[whole - {i}] for i in range(n)])


def exact(n: int, game: Game) -> Shapley:
    """From all 2^n coalitions; both bounds are the value itself."""
    weights = [math.factorial(k) * math.factorial(n - k - 1) / math.factorial(n) for k in range(n)]
    value = np.zeros(n)
    for some in all_coalitions(n):
        for i in everybody(n) - some:
            value[i] += weights[len(some)] * (game[some | {i}] - game[some])
    return Shapley(value, value, value)


def random_orders(n: int, how_many: int, seed: int) -> Ints:
    """Orders in which n players come, drawn one by one: (how_many, n); the first are the same however many."""
    chance = np.stack([draws(seed, "coalitions", number).random(n) for number in range(how_many)])
    return np.argsort(chance, axis=1, kind="stable")


def coalitions_of(orders: Ints) -> list[Coalition]:
    """All coalitions from the empty one to that of all in any of `orders` (k, n), each once."""
    found = (frozenset(row[:size].tolist()) for row in orders for size in range(len(row) + 1))
    return list(dict.fromkeys(found))


def sampled(orders: Ints, game: Game) -> Shapley:
    """From random `orders` (k, n): the mean of what each player added, and Student's interval of that mean."""
    added = np.zeros(orders.shape)
    for row, players in zip(added, orders, strict=True):
        for place, player in enumerate(players):
            before = frozenset(players[:place].tolist())
            row[player] = game[before | {int(player)}] - game[before]
    k, value = len(orders), added.mean(0)
    if k < 2:
        return Shapley(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    width = bound(SHARE, k - 1) * added.std(0, ddof=1) / math.sqrt(k)
    return Shapley(value, value - width, value + width)
