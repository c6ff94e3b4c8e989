"""Who watches a run that is called from Python: a bar where somebody looks, and whoever was given."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from fedotp.runs._live import LiveDisplay
from fedotp.runs._notebook import NotebookDisplay
from fedotp.runs._observer import Observer, Observers


@contextmanager
def watched(observer: Observer | None, progress: bool | None) -> Iterator[Observer]:
    """The observer of a run: `observer`, and a bar if `progress` is true.

    None shows one where nobody else was given to watch and somebody looks: in a notebook, or at a terminal.
    """
    console = Console(stderr=True)
    looked_at = console.is_jupyter or console.is_terminal
    if not (looked_at and observer is None if progress is None else progress):
        yield observer or Observer()
    elif console.is_jupyter:
        yield _both(NotebookDisplay(), observer)
    else:
        with LiveDisplay(console) as display:
            yield _both(display, observer)


def _both(display: Observer, observer: Observer | None) -> Observer:
    return display if observer is None else Observers(display, observer)
