"""Progress bars for hashing and encoding images; lines if stderr is not a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

OnBar = Callable[[str, int, int], None]  # the step, the number done, the total

_EVERY = 30.0  # seconds between two lines, unless another tenth is done


@contextmanager
def encoding_progress(*, quiet: bool = False, transient: bool = False) -> Iterator[OnBar | None]:
    """Draw a bar on stderr, or print lines, for each step of `encode`; pass the yielded function as `on_progress`.

    `transient` bars disappear at the end, and are not replaced by lines.
    """
    console = Console(stderr=True)
    if quiet:
        yield None
        return
    if not transient and not console.is_terminal:
        yield lines_of_progress()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=transient) as progress:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, speed="")
            speed = progress.tasks[tasks[what]].speed
            progress.update(tasks[what], completed=done, total=total, speed=f"{speed:,.0f} images/s" if speed else "")

        yield show


def lines_of_progress(clock: Callable[[], float] = time.monotonic) -> OnBar:
    """Print a line on stderr when a step begins, for every tenth or 30 s of it, and when it ends."""
    begun: dict[str, float] = {}
    printed: dict[str, tuple[float, int]] = {}  # time, and tenths done

    def show(what: str, done: int, total: int) -> None:
        now, tenth = clock(), 10 * done // max(total, 1)
        began = begun.setdefault(what, now)
        when, before = printed.get(what, (now - _EVERY, 0))
        if tenth > before or now - when >= _EVERY:
            printed[what] = now, tenth
            speed = f", {done / (now - began):,.0f} images/s" if now > began else ""
            print(f"{what}: {done:,} of {total:,} ({done / max(total, 1):.0%}){speed}", file=sys.stderr, flush=True)

    return show
