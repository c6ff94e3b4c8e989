"""Tab completion for the shell: each function yields completions and their descriptions. Nothing imports torch."""

import glob
import textwrap
from collections.abc import Iterator
from pathlib import Path

Offer = tuple[str, str]
_SHOWN = 70  # characters of a description: typer wraps longer ones, and the shell reads each line as a word


def sources(begun: str) -> Iterator[Offer]:
    """Yield presets and *.toml files."""
    from fedotp.config import presets

    yield from _beginning(begun, presets())
    for path in sorted(glob.glob(f"{glob.escape(begun)}*.toml")):
        yield path, "a configuration"


def sources_or_runs(begun: str) -> Iterator[Offer]:
    """Yield presets, *.toml files and directories of runs."""
    yield from sources(begun)
    yield from runs(begun)


def runs(begun: str) -> Iterator[Offer]:
    """Yield directories of runs and other folders; those in runs/ if nothing was typed yet."""
    if not begun and Path("runs").is_dir():
        begun = "runs/"
    for name in sorted(glob.glob(f"{glob.escape(begun)}*")):
        path = Path(name)
        if (path / "config.toml").is_file():
            yield name, "a run"
        elif path.is_dir():
            yield f"{name}/", "a folder"


def assignments(begun: str) -> Iterator[Offer]:
    """Yield KEY=, or KEY=VALUE for keys with a fixed set of values."""
    from fedotp.config import known_keys

    keys = known_keys()
    key, equals, _ = begun.partition("=")
    if equals and key in keys:
        yield from _beginning(begun, {f"{key}={choice}": "" for choice in keys[key].choices})
    elif not equals:
        yield from _beginning(begun, {f"{name}=": word.line for name, word in keys.items()})


def methods(begun: str) -> Iterator[Offer]:
    """Yield names of methods for a comma-separated list."""
    from fedotp.config import known_methods

    before, comma, last = begun.rpartition(",")
    yield from ((f"{before}{comma}{name}", title) for name, title in _beginning(last, known_methods()))


def datasets(begun: str) -> Iterator[Offer]:
    """Yield names of known data sets, and folders."""
    from fedotp.data import DATASETS

    yield from _beginning(begun, {name: info.title for name, info in DATASETS.items()})
    for name in sorted(glob.glob(f"{glob.escape(begun)}*/")) if begun else []:
        yield name, "a folder"


def entries(begun: str) -> Iterator[Offer]:
    """Yield the tables and figures of the paper."""
    from fedotp.paper import ENTRIES

    yield from _beginning(begun, {name: entry.title for name, entry in ENTRIES.items()})


def _beginning(begun: str, words: dict[str, str]) -> Iterator[Offer]:
    return ((word, textwrap.shorten(meaning, _SHOWN)) for word, meaning in words.items() if word.startswith(begun))
