"""The value of each client of a run, from many runs of the same federation with some of its clients only.

The value of a federation is one number, on the same test images for all its runs. What each of n players adds to it is
the Shapley value (1953), exactly or from random orders,

    phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! (v(S + i) - v(S)),

the mean, over all orders in which players can come, of the value that i adds when it comes; and leaving one out.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fedotp.config import Config
from fedotp.errors import FedotpError, listed
from fedotp.federation import Checkpoint, Floats, Ints, Simulator, draws
from fedotp.federation.testing import Evaluation, Predictions
from fedotp.methods import Method
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import Trial, directory_name
from fedotp.runs.one import Prepared, make_simulator, prepare
from fedotp.runs.tables import SHARE, bound
from fedotp.runs.watch import Observer

Utility = Literal["global", "personal"]
UTILITIES: tuple[Utility, ...] = get_args(Utility)
FEW = 5  # players whose coalitions are all run, unless --permutations is given
_MOST_EXACT = 12  # 4,096 runs
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


def choose_utility(asked: str | None, method: Method) -> Utility:
    """What a run is measured by: as `asked`, or by what the clients share where that predicts by itself."""
    if asked is None:
        return "personal" if method.global_part is None else "global"
    if asked not in UTILITIES:
        raise FedotpError(f"--of {asked}: must be {listed(UTILITIES)}")
    if asked == "global" and method.global_part is None:
        raise FedotpError(f"--of global: {method.title} has no global part that predicts by itself; give --of personal")
    return asked


def measure(prepared: Prepared, of: Utility, players: Ints, members: Ints, run: RunDirectory | None) -> float:
    """The value of the complete `run` of `members` (m,) among `players` (n,); before any training if `run` is None.

    "global": what the server has learned predicts for everyone. "personal": each member predicts with its own
    classifier, and everyone else with what a new client would be sent. Both are means of accuracy over the players
    that have test images, each counting once. `prepared` is the federation with all players.
    """
    config = prepared.config
    if run is None:
        federation = Simulator(config.method, prepared.task, prepared.data, config.settings, novel=prepared.novel)
    else:
        federation = make_simulator(prepared, run)
    try:
        if run is not None:
            Checkpoint.read(run.checkpoint).restore(federation)
        if of == "global":
            views = {(view.view, view.model): view for view in federation.see()}
            return views["personal", "global"].evaluation.mean
        outside = np.setdiff1d(players, members)
        lines = [federation.predict(members)] if len(members) else []
        lines += [federation.predict_new(outside)] if len(outside) else []
        return Evaluation.of(Predictions.join(lines), len(federation.task.classes), federation.domains).mean
    finally:
        federation.kept.close()


@dataclass(frozen=True, eq=False)
class Plan:
    """Which coalitions of the clients of a run are needed, and the runs that are made for them.

    Players are counted from 0 here; `players` (n,) are their numbers in the run.
    """

    run: RunDirectory
    of: Utility
    players: Ints
    orders: Ints | None
    coalitions: tuple[Coalition, ...]

    @cached_property
    def names(self) -> list[str]:
        """The players' names."""
        return [self.run.manifest["clients"][i] for i in self.players]

    @property
    def trials(self) -> list[Trial]:
        """The runs to make: all but that of no players and that of all."""
        wanted = [some for some in self.coalitions if 0 < len(some) < len(self.players)]
        names = {some: self.trial_name(some) for some in wanted}
        return [Trial(name, {"clients": name}, self.config(some)) for some, name in names.items()]

    def trial_name(self, some: Coalition) -> str:
        """The directory of a coalition's run, below that of the run itself."""
        return directory_name([f"with={'+'.join(self.names[i] for i in sorted(some))}"])

    def config(self, some: Coalition, *, to_measure: bool = False) -> Config:
        """The run's configuration with the players in `some` only; `to_measure` it, not to run it."""
        config = self.run.config
        here = {self.names[i] for i in some}
        away = tuple(name for name in self.run.manifest["clients"] if name not in here)
        rounds = replace(config.federation, without=away, holdout=(), holdout_clients=0)
        tests = replace(config.evaluation, views=("personal", "global") if to_measure else ("personal",), clients=0)
        tests = tests if config.evaluation.patience else replace(tests, every=0)
        return replace(config, federation=rounds, evaluation=tests)


def plan_value(
    path: str | Path, *, of: str | None = None, permutations: int | None = None, all_of_them: bool = False
) -> Plan:
    """Which runs the value of each client of the run in `path` takes.

    Args:
        of: the value of a federation: "global", how often what the clients share is right on the test images of all,
            or "personal", how often each client's own classifier is.
        permutations: random orders in which clients come; if not given, all coalitions of up to five clients are run,
            and ten orders of more.
        all_of_them: run all coalitions, of more clients, too.
    """
    run = RunDirectory.open(path)
    if run.is_deployed:
        raise FedotpError(
            f"{path} is a run of real sites: what each contributed takes many runs on their images, which are not here"
        )
    if not run.is_complete:
        raise FedotpError(f"{path} is not complete; resume it with `{run.resume_command}`")
    if run.config.attack.name != "none":
        raise FedotpError(f'{path} has attack.name = "{run.config.attack.name}": only honest federations have a value')
    with run.reading():
        players = _players(run)
    n = len(players)
    if n < 2:
        raise FedotpError(f"{path}: only one client trained; there is no other to share the value with")
    if permutations is not None and permutations < 1:
        raise FedotpError(f"--permutations {permutations}: must be 1 or more, for example 20")
    if all_of_them and (permutations is not None or n > _MOST_EXACT):
        why = "leave out --permutations" if permutations else f"that is 2^{n} runs; give --permutations 20"
        raise FedotpError(f"--exact: {why}")
    orders = None
    if not all_of_them and (permutations is not None or n > FEW):
        orders = random_orders(n, permutations or 10, run.config.seed)
    ways = all_coalitions(n) if orders is None else coalitions_of(orders)
    alone = [everybody(n) - {i} for i in range(n)]
    chosen = choose_utility(of, run.config.method)
    return Plan(run, chosen, players, orders, tuple(dict.fromkeys([*ways, *alone])))


def measure_plan(plan: Plan, observer: Observer | None = None) -> dict[str, Any]:
    """What each client contributed, once all runs of a plan are complete; also written to value.json in the run."""
    run, n = plan.run, len(plan.players)
    prepared = prepare(plan.config(everybody(n), to_measure=True), observer, run)
    game: dict[Coalition, float] = {}
    for some in plan.coalitions:
        part = None if not some else run if len(some) == n else RunDirectory(run.path / "value" / plan.trial_name(some))
        game[some] = measure(prepared, plan.of, plan.players, plan.players[sorted(some)], part)
    result = _result(plan, game)
    run.save_finding("value", result)
    return run.finding("value") or result


def _players(run: RunDirectory) -> Ints:
    """The clients that trained, or might have."""
    config, names = run.config, run.manifest["clients"]
    away = [*config.federation.held_out(names, run.manifest["domains"], config.seed), *config.federation.absent(names)]
    sizes = [len(client.train) for client in run.partition.clients]
    return np.array([i for i in range(len(names)) if sizes[i] and i not in away], np.int64)


def _result(plan: Plan, game: dict[Coalition, float]) -> dict[str, Any]:
    n = len(plan.players)
    shapley = exact(n, game) if plan.orders is None else sampled(plan.orders, game)
    columns = {
        "leave_one_out": leave_one_out(n, game),
        "shapley": shapley.value,
        "low": shapley.low,
        "high": shapley.high,
    }
    sites = [
        {"name": name, **{key: None if np.isnan(values[i]) else float(values[i]) for key, values in columns.items()}}
        for i, name in enumerate(plan.names)
    ]
    return {
        "of": plan.of,
        "exact": plan.orders is None,
        "permutations": None if plan.orders is None else len(plan.orders),
        "all": game[everybody(n)],
        "none": game[frozenset()],
        "sites": sites,
        "coalitions": [{"sites": sorted(plan.names[i] for i in some), "value": game[some]} for some in plan.coalitions],
        "state": Checkpoint.read(plan.run.checkpoint).digest(plan.run.kept),
    }
