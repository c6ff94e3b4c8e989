"""Runs side by side, whose clients are trained like those of one federation."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from fedotp._system import Interrupt, listen
from fedotp.config import Config
from fedotp.federation import Simulator, using_threads
from fedotp.federation.together import Together
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many._trials import Relay, Trial, Update, begun_or_new, run_one, why
from fedotp.runs.one import Loop, Preparation, Prepared, opened

Work = tuple[Trial, Path]
_Ready = tuple[Trial, Path, Prepared]

_MOST = 64  # maximum of parallel runs, each with a thread and a few open files


def side_by_side(work: Sequence[Work], jobs: int = 1) -> list[list[Work]]:
    """Group `work` that can go side by side, in the order of first runs, into enough groups for `jobs` processes."""
    groups: list[list[Work]] = []
    for item in work:
        alike = (group for group in groups if _alike(group[0][0].config, item[0].config))
        group = next(alike, None)
        if group is None:
            groups.append([item])
        else:
            group.append(item)
    most = -(-len(work) // jobs)
    return [group[start : start + most] for group in groups for start in range(0, len(group), most)]


def _alike(one: Config, other: Config) -> bool:
    """True if two runs can go side by side; a given `group_size` excludes that."""
    return (
        not one.compute.group_size
        and (one.data, one.backbone, one.prompt, one.authors)
        == (other.data, other.backbone, other.prompt, other.authors)
        and one.settings.in_common() == other.settings.in_common()
        and one.method == other.method
    )


def run_group(
    group: Sequence[Work],
    report: Callable[[Update], object],
    on_interrupt: Callable[[], object],
    ready: Preparation | None = None,
) -> Generator[tuple[Trial, str]]:
    """Run or resume trials side by side, as many as fit; yield each finished one with its error or "".

    After Ctrl-C, the current rounds are finished and no further runs are started. `ready` is an existing preparation.
    """
    if len(group) == 1:
        ((trial, path),) = group
        yield trial, run_one(trial, path, report, on_interrupt, ready)
        return
    wanted = group[0][0].config.compute.threads  # those of a group agree
    with listen(on_interrupt) as interrupt, using_threads(wanted) if wanted else nullcontext():
        waiting = deque[_Ready]()
        prepared: Sequence[Prepared | Exception]
        try:
            runs = [begun_or_new(trial, RunDirectory(path)) for trial, path in group]
            prepared = (ready or Preparation(group[0][0].config)).prepare_each(runs)
        except Exception as error:
            prepared = [error] * len(group)
        for (trial, path), found in zip(group, prepared, strict=True):
            if isinstance(found, Prepared):
                waiting.append((trial, path, found))
            else:
                yield trial, why(found)
        while waiting and not interrupt.wanted:
            with closing(_at_a_time(waiting, interrupt, report)) as ended:
                yield from ended


@dataclass(frozen=True, eq=False)
class _Open:
    """A run that is locked until `close`."""

    trial: Trial
    loop: Loop
    simulator: Simulator
    close: Callable[[], object]


def _at_a_time(
    waiting: deque[_Ready], interrupt: Interrupt, report: Callable[[Update], object]
) -> Generator[tuple[Trial, str]]:
    """Take as many `waiting` runs as fit into memory, and complete them."""
    together = Together()
    n_waiting = len(waiting)
    with ExitStack() as all_of_them:
        runs: list[_Open] = []
        while waiting and len(runs) < (_share(n_waiting, runs[0].simulator) if runs else 1):
            trial, path, prepared = waiting.popleft()
            relay = Relay(trial.name, lambda update: together.call(partial(report, update)))
            stack = all_of_them.enter_context(ExitStack())
            try:
                loop, simulator = stack.enter_context(opened(prepared, RunDirectory(path), relay, alone=False))
            except Exception as error:
                yield trial, why(error)
                continue
            runs.append(_Open(trial, loop, simulator, stack.close))
        if not runs:  # all failed to open
            return
        works = [(run.simulator, partial(run.loop.go, interrupt)) for run in runs]
        with closing(together.go(works)) as ended:
            for number, failure in ended:
                run = runs[number]
                run.close()
                if failure is not None and not isinstance(failure, Exception):
                    raise failure
                yield run.trial, why(failure) if failure else ""


def _share(n_runs: int, one: Simulator) -> int:
    """Return how many of `n_runs` runs to take: as many as fit, in equal batches; on a CPU at most one per core."""
    n_cores = torch.get_num_threads() if one.device.type == "cpu" else 1
    fit = max(one.group_size, min(n_cores * one.clients_per_round, one.n_fitting))
    fit = min(max(1, fit // one.clients_per_round), _MOST)
    return -(-n_runs // -(-n_runs // fit))
