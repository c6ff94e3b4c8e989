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
    if quiet:
        yield None
    elif not transient and not Console(stderr=True).is_terminal:
        yield lines_of_progress()
    else:
        bars = EncodingBars(transient=transient)
        try:
            yield bars.show
        finally:
            bars.close()


class EncodingBars:
    """Bars on stderr for hashing and encoding, drawn from the first `show` until `close`."""

    def __init__(self, *, transient: bool = True) -> None:
        self._transient = transient
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def show(self, what: str, done: int, total: int) -> None:
        """Draw or move a bar."""
        if self._progress is None:
            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
            speed_and_left = TextColumn("{task.fields[speed]}"), TimeRemainingColumn()
            console = Console(stderr=True)
            self._progress = Progress(*columns, *speed_and_left, console=console, transient=self._transient)
            self._progress.start()
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, speed="")
        task = self._tasks[what]
        speed = self._progress.tasks[task].speed
        self._progress.update(task, completed=done, total=total, speed=f"{speed:,.0f} images/s" if speed else "")

    def close(self) -> None:
        """Remove transient bars; leave others."""
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._tasks = None, {}


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
