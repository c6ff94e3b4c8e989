"""Bars for images that are hashed and encoded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

OnBar = Callable[[str, int, int], None]  # what is done, how many are done, of how many


@contextmanager
def encoding_progress(*, quiet: bool = False, transient: bool = False) -> Iterator[OnBar | None]:
    """Draw a bar on stderr for each step of `encode`: pass what it gives as `on_progress`.

    `transient` bars disappear when all is done.
    """
    if quiet:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=transient) as progress:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, speed="")
            speed = progress.tasks[tasks[what]].speed
            progress.update(tasks[what], completed=done, total=total, speed=f"{speed:,.0f} images/s" if speed else "")

        yield show
