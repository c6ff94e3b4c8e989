"""Federations side by side: each ends as it would alone, and what they do is done as one."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from toy_federation import (
    assert_same_bits,
    make_data,
    make_settings,
    make_task,
    method_of,
    simulator,
    state_of,
    worst_difference,
)

from anchored import IN_FEATURE_SPACE, STRUCTURES
from fedotp.federation import FederatedData, Settings, Simulator
from fedotp.federation._hardware import Cores
from fedotp.federation.clients import LocalTrainer
from fedotp.federation.together import Together
from fedotp.methods import Method

SEEDS = (0, 1, 2, 3)
DATA = make_data()


def other_split(seed: int) -> FederatedData:
    """The same images in the hands of other clients, who are not as many."""
    rng = np.random.default_rng(seed)
    splits = {}
    for name, ends in (("train", (2, 10, 12, 13)), ("test", (5, 6, 10, 13))):
        images = getattr(DATA, name)
        order = rng.permutation(len(images.labels))
        splits[name] = replace(images, clients=tuple(np.sort(rows) for rows in np.split(order, ends[: 3 + seed % 2])))
    n = len(splits["train"].clients)
    return replace(DATA, names=DATA.names[:n], domains=DATA.domains[:n], **splits)


def federations(method: Method | str, dtype: torch.dtype = torch.float64, **settings: Any) -> list[Simulator]:
    """With seeds, learning rates and splits of their own."""
    method = method_of(method) if isinstance(method, str) else method
    made, space = [], settings.pop("space", "context")
    for seed in SEEDS:
        own = settings_of(seed, dtype, **settings)
        data = DATA if seed < 2 else other_split(seed)
        made.append(simulator(method, own, task=make_task(dtype, seed=seed, space=space), data=data))
    return made


def settings_of(seed: int, dtype: torch.dtype, **changes: Any) -> Settings:
    optimizer = {"lr": (0.02, 0.01, 0.02, 0.03)[seed], "schedule": ("constant", "cosine")[seed % 2]}
    precision = "float64" if dtype == torch.float64 else "float32"
    changes = {"participation": 0.8, "dropout": 0.2, "holdout_clients": 1, "join_epochs": 1} | changes
    return make_settings(
        **{
            **changes,
            "seed": seed,
            "optimizer": optimizer | changes.get("optimizer", {}),
            "compute": {"precision": precision},
        }
    )


def rounds(federation: Simulator, found: list[Any]) -> None:
    """A run as a loop makes it: an evaluation before each round and after the last, and clients that join."""
    for number in range(3):
        if number % federation.settings.evaluation.every == 0:
            found.append(federation.predict())
        found.append(federation.run_round())
    found.append(federation.predict())
    joined = federation.join_held_out()
    assert joined is not None
    found.append(joined[1])


Works = list[Callable[[], object]]


def side_by_side(several: list[Simulator], works: Works | None = None) -> tuple[list[list[Any]], list[Any]]:
    """What each has found, and the error of each."""
    found: list[list[Any]] = [[] for _ in several]
    works = works or [partial(rounds, one, to) for one, to in zip(several, found, strict=True)]
    before = threading.active_count()
    ended = dict(Together().go([*zip(several, works, strict=True)]))
    assert threading.active_count() == before
    assert all(one.executor is None for one in several)
    return found, [ended[number] for number in range(len(several))]


def alone(several: list[Simulator]) -> list[list[Any]]:
    found: list[list[Any]] = [[] for _ in several]
    for one, to in zip(several, found, strict=True):
        rounds(one, to)
    return found


def assert_alike(one: Simulator, two: Simulator, found: list[Any], expected: list[Any], tolerance: float) -> None:
    assert worst_difference(state_of(one), state_of(two)) <= tolerance
    for mine, theirs in zip(found, expected, strict=True):
        if hasattr(mine, "sampled"):
            for name in ("sampled", "answered", "examples"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
            np.testing.assert_allclose(mine.loss, theirs.loss, rtol=0, atol=1000 * tolerance)
            assert (mine.n_images, mine.lr) == (theirs.n_images, theirs.lr)
            assert (mine.bytes_up, mine.bytes_down) == (theirs.bytes_up, theirs.bytes_down)
        else:
            for name in ("client", "row", "label"):  # in the same order, too
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
            np.testing.assert_allclose(mine.loss, theirs.loss, rtol=0, atol=1000 * tolerance)


def assert_as_alone(method: str, tolerance: float = 1e-13, **settings: Any) -> list[Simulator]:
    """Return those that went side by side."""
    apart, several = (federations(method, **settings) for _ in range(2))
    expected = alone(apart)
    found, errors = side_by_side(several)
    assert errors == [None] * len(SEEDS)
    for one, two, mine, theirs in zip(several, apart, found, expected, strict=True):
        assert_alike(one, two, mine, theirs, tolerance)
    return several


def before_training(monkeypatch: pytest.MonkeyPatch, check: Callable[[LocalTrainer, int], object]) -> list[int]:
    """How many clients are trained at once, every time; `check` is called before with the trainer and this number."""
    sizes: list[int] = []
    plain = LocalTrainer.train

    def train(self, work, *args):  # type: ignore[no-untyped-def]
        sizes.append(len(work.clients))
        check(self, len(work.clients))
        return plain(self, work, *args)

    monkeypatch.setattr(LocalTrainer, "train", train)
    return sizes


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return before_training(monkeypatch, lambda *_: None)


@contextmanager
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


ADAMW = {"optimizer": {"name": "adamw", "reset": False}}


@pytest.mark.parametrize(
    ("method", "tolerance", "settings"),
    [
        *((name, 1e-13, {}) for name in dict.fromkeys((*STRUCTURES, "fedotp", "promptfolio", "fedmgp:code"))),
        *((name, 1e-13, {"space": "features"}) for name in IN_FEATURE_SPACE),
        ("fedotp", 5e-6, {"dtype": torch.float32}),
        ("fedotp", 1e-9, ADAMW),  # AdamW divides by small numbers
    ],
)
def test_each_ends_as_it_would_alone(method: str, tolerance: float, settings: dict[str, Any]) -> None:
    states = [state_of(one) for one in assert_as_alone(method, tolerance, **settings)[:2]]
    assert not states[0] or worst_difference(*states) > 0.01


def test_a_round_is_one_group_for_all_that_take_part(trained: list[int]) -> None:
    alone(federations("fedotp"))
    n_alone = len(trained)
    side_by_side(federations("fedotp"))
    assert 3 * (len(trained) - n_alone) < n_alone


def test_alone_among_others_it_is_the_same_bit_for_bit() -> None:
    """Methods, or backbones, that cannot be joined do not touch each other."""
    apart, several = (
        [simulator(method, task=make_task(seed=seed)) for seed, method in enumerate(("coop", "promptfl"))]
        for _ in range(2)
    )
    side_by_side(several, [one.run_round for one in several])
    for one, two in zip(several, apart, strict=True):
        two.run_round()
        assert_same_bits(state_of(one), state_of(two))


def test_those_evaluated_less_often_stay_in_step(trained: list[int]) -> None:
    several = federations("promptfl", dropout=0.0)
    for one, every in zip(several, (1, 2, 3, 1), strict=True):
        one.settings = replace(one.settings, evaluation=replace(one.settings.evaluation, every=every))
    side_by_side(several)
    assert len(trained) == 4  # rounds, and the joining of those held out


def test_those_behind_catch_up(trained: list[int]) -> None:
    several = federations("coop", dropout=0.0)
    for _ in range(2):
        several[1].run_round()
    trained.clear()

    def until_four(one: Simulator) -> None:
        while one.round < 4:
            one.run_round()

    side_by_side(several, [partial(until_four, one) for one in several])
    per_round = [one.clients_per_round for one in several]
    assert trained == [sum(per_round) - per_round[1]] * 2 + [sum(per_round)] * 2


def test_out_of_memory_halves_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_: LocalTrainer, n_clients: int) -> None:
        if n_clients > 7:
            raise torch.OutOfMemoryError("too many")

    tried = before_training(monkeypatch, check)
    assert_as_alone("fedotp")
    assert sum(size > 7 for size in tried) == 1  # it is remembered


@pytest.mark.parametrize("method", ["fedotp", "pfedprompt"])
def test_with_a_core_for_each_part(method: str, trained: list[int]) -> None:
    with two_threads():
        assert_as_alone(method, dropout=0.0)
    assert sum(size > 4 for size in trained) > 0  # more than there are clients in a federation


@pytest.mark.parametrize("at_a_time", [1, 2])
def test_federations_that_fill_a_group_have_a_core_each_where_memory_allows(
    at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = federations("fedotp", dropout=0.0)[:2]
    for one in several:
        one.group_size, one.n_fitting = one.clients_per_round, at_a_time * one.clients_per_round
    plain, seen = Cores.do, []

    def do(self: Cores, works: list[Callable[[], None]]) -> None:
        seen.append(len(works))
        plain(self, works)

    monkeypatch.setattr(Cores, "do", do)
    with two_threads():
        list(Together().go([(one, one.run_round) for one in several]))
    assert max(seen) == at_a_time


def test_an_interrupt_does_not_wait_for_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it goes on in other threads, as after a second Ctrl-C."""
    n_threads = threading.active_count()
    several = federations("promptfl", dropout=0.0, local_epochs=3_000)

    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    with two_threads(), pytest.raises(KeyboardInterrupt):
        list(Together().go([(one, one.run_round) for one in several]))
    assert threading.active_count() == n_threads
    assert all(one.round == 0 for one in several)
