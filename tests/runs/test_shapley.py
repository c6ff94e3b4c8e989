"""Shapley values against all orders one by one, textbook games, and what the axioms say."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedotp.runs.leaving._value import (
    Coalition,
    all_coalitions,
    coalitions_of,
    exact,
    leave_one_out,
    random_orders,
    sampled,
)

Values = dict[Coalition, float]


def game(n: int, worth: Callable[[Coalition], float]) -> Values:
    return {some: worth(some) for some in all_coalitions(n)}


def random_game(n: int, seed: int) -> Values:
    rng = np.random.default_rng(seed)
    return game(n, lambda some: float(rng.normal(scale=1 + len(some))))


def order_by_order(n: int, values: Values) -> list[float]:
    """The definition: in every order in which players can come, what each adds; the mean."""
    added: list[list[float]] = [[] for _ in range(n)]
    for arrivals in itertools.permutations(range(n)):
        here: set[int] = set()
        for player in arrivals:
            before = values[frozenset(here)]
            here.add(player)
            added[player].append(values[frozenset(here)] - before)
    assert all(len(each) == math.factorial(n) for each in added)
    return [math.fsum(each) / len(each) for each in added]


@settings(max_examples=30)
@given(n=st.integers(2, 5), seed=st.integers(0, 10**6))
def test_all_coalitions_give_what_all_orders_give(n: int, seed: int) -> None:
    values = random_game(n, seed)
    found = exact(n, values)
    np.testing.assert_allclose(found.value, order_by_order(n, values), rtol=0, atol=1e-12)
    orders = np.array(list(itertools.permutations(range(n))))
    np.testing.assert_allclose(sampled(orders, values).value, found.value, rtol=0, atol=1e-12)


@settings(max_examples=30)
@given(n=st.integers(2, 6), seed=st.integers(0, 10**6), k=st.integers(1, 4))
def test_what_is_divided_is_what_there_is(n: int, seed: int, k: int) -> None:
    values = random_game(n, seed)
    whole = values[frozenset(range(n))] - values[frozenset()]
    assert exact(n, values).value.sum() == pytest.approx(whole, abs=1e-12)
    assert sampled(random_orders(n, k, seed), values).value.sum() == pytest.approx(whole, abs=1e-12)


@settings(max_examples=30)
@given(n=st.integers(3, 6), seed=st.integers(0, 10**6))
def test_who_adds_nothing_gets_nothing_and_who_adds_the_same_gets_the_same(n: int, seed: int) -> None:
    others = random_game(n - 1, seed)
    dummy = game(n, lambda some: others[some - {n - 1}] + 0.25 * (n - 1 in some))
    assert exact(n, dummy).value[n - 1] == pytest.approx(0.25, abs=1e-12)
    assert leave_one_out(n, dummy)[n - 1] == pytest.approx(0.25, abs=1e-12)
    rng = np.random.default_rng(seed)
    by_number = rng.normal(size=(3, 2 ** (n - 2)))

    def worth(some: Coalition) -> float:
        rest = sum(1 << (i - 2) for i in some if i > 1)
        return float(by_number[len(some & {0, 1}), rest])

    values = exact(n, game(n, worth)).value
    assert values[0] == pytest.approx(values[1], abs=1e-12)


def test_textbook_games() -> None:
    """Gloves: one left, two right, a pair is worth 1. An airport: each runway costs as much as its longest plane."""
    gloves = game(3, lambda some: float(0 in some and bool(some & {1, 2})))
    np.testing.assert_allclose(exact(3, gloves).value, [2 / 3, 1 / 6, 1 / 6], atol=1e-15)
    costs = [8.0, 11.0, 13.0, 18.0]
    airport = game(4, lambda some: max((costs[i] for i in some), default=0.0))
    np.testing.assert_allclose(exact(4, airport).value, [2, 3, 4, 9], atol=1e-12)
    np.testing.assert_allclose(leave_one_out(4, airport), [0, 0, 0, 5])


def test_the_interval_covers_the_value_as_often_as_it_says() -> None:
    """300 intervals from 20 orders each, for 5 players; what chance allows beside 95 %."""
    values = random_game(5, 3)
    truth = exact(5, values).value
    found = [sampled(random_orders(5, 20, seed), values) for seed in range(300)]
    covers = np.mean([(one.low <= truth) & (truth <= one.high) for one in found])
    assert 0.92 < covers < 0.98
    np.testing.assert_allclose(np.mean([one.value for one in found], 0), truth, atol=0.15)


def test_more_orders_add_to_those_before_and_visit_what_they_need() -> None:
    alone = sampled(random_orders(4, 1, 0), random_game(4, 0))
    assert np.isnan([*alone.low, *alone.high]).all()  # one order has no interval
    few, many = random_orders(6, 3, 5), random_orders(6, 8, 5)
    np.testing.assert_array_equal(many[:3], few)
    assert (np.sort(many, axis=1) == np.arange(6)).all()
    visited = coalitions_of(few)
    assert len(set(visited)) == len(visited)
    assert {*visited} == {frozenset(row[:size].tolist()) for row in few for size in range(7)}
