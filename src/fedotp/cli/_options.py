"""Arguments and options of more than one command: an option means the same wherever it occurs."""

import csv
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp._files import parse_json
from fedotp.cli import _complete
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from fedotp.config import Config
    from fedotp.runs.directory import RunDirectory

# Any command ---------------------------------------------------------------------------------------------------

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead, an object a line.")]
DEVICE = "auto"
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda:1 ...; auto is a GPU if there is one.")]
BackboneOption = Annotated[
    str | None, typer.Option(help="File of the backbone's weights, if the run's own path is not valid here.")
]

# Configurations ------------------------------------------------------------------------------------------------

SOURCE = "demo"
SourceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PRESET|FILE",
        help=f"A preset (`fedotp presets` lists them) or a file that ends in .toml; {SOURCE} if not given.",
        autocompletion=_complete.sources,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, such as method.mass=0.5; any number of times.",
        autocompletion=_complete.assignments,
    ),
]
OutOption = Annotated[
    Path | None, typer.Option(help="The new directory of the run; named after the run, in runs/, if not given.")
]
METHODS = "fedotp,promptfl,coop,zeroshot"  # to compare

# Many runs -----------------------------------------------------------------------------------------------------


JobsOption = Annotated[
    int, typer.Option(min=1, help="Processes at a time, each with its own runs and, if there are several, its own GPU.")
]

_MOST = 10_000  # seeds or splits of a range: each is a run

SeedsOption = Annotated[str, typer.Option(help="Seeds, such as 0,1,2 or 0..11.")]
SplitsOption = Annotated[
    str | None, typer.Option(help="Splits of the data, such as 0..5; if not given, one: partition.seed.")
]
ControlsOption = Annotated[
    bool, typer.Option("--controls", help="Also train every method on shuffled labels; it must be above that.")
]


def whole_numbers(text: str, option: str) -> list[int]:
    """The numbers that "0,1,5..7" names."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            numbers = range(int(first), int(last) + 1 if dots else int(first) + 1)
            if not 0 < len(numbers) <= _MOST:
                raise ValueError
            found += numbers
    except (ValueError, OverflowError):
        raise FedotpError(
            f"{option} {text}: must be whole numbers and ranges, separated by commas, for example 0,1,2 or 0..11"
        ) from None
    return found


# Runs ----------------------------------------------------------------------------------------------------------

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run.", autocompletion=_complete.runs)]
ResumeOption = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Continue the run in this directory.", autocompletion=_complete.runs)
]
RunsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="Directories of runs, or folders with runs in them.", autocompletion=_complete.runs
    ),
]
_CLIENT = "Name of a client of the run"
ClientOption = Annotated[str | None, typer.Option(metavar="NAME", help=f"{_CLIENT}.")]
ClientsOption = Annotated[
    list[str] | None, typer.Option("--client", metavar="NAME", help=f"{_CLIENT}; any number of times.")
]


def runs_at(paths: Sequence[Path]) -> "list[RunDirectory]":
    """The runs named, each once; of a folder that is not a run all runs in it."""
    from fedotp.runs.directory import RunDirectory, find_runs

    found: dict[Path, RunDirectory] = {}
    for path in paths:
        is_run = (path / "config.toml").is_file() or not path.is_dir()
        runs = [RunDirectory.open(path)] if is_run else find_runs(path)
        if not runs:
            raise FedotpError(f"no runs in {path}; `fedotp run` makes one")
        for run in runs:
            with run.reading():
                run.require_method()  # in one line, and not once for everything that is made of the run
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


# Classifiers ---------------------------------------------------------------------------------------------------

ClassifierArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|BUNDLE", help="Directory of a run, or a bundle of `fedotp export`.", autocompletion=_complete.runs
    ),
]
CalibrateOption = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER|test",
        help="Calibrate with test images of the client: a folder or table, or test for those of the run.",
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(metavar="NAMES|FILE", help="Names of the classes, separated by commas, or a file with one per line."),
]


def class_names(given: str) -> list[str]:
    """Names separated by commas, or the lines of a file."""
    from fedotp.data import read_lines

    path = os.path.expanduser(given)
    return (
        read_lines(Path(path)) if os.path.isfile(path) else [name.strip() for name in given.split(",") if name.strip()]
    )


PriorOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=10,
        metavar="STRENGTH",
        help="Strength of the class prior: 0 for none, 1 as Bayes' rule has it; as in the run if not given.",
    ),
]
FrequenciesOption = Annotated[
    str | None,
    typer.Option(
        metavar="SHARES|FILE",
        help="Class frequencies for the prior, such as normal=0.9,pneumonia=0.1, or a file *.csv or *.json; those of "
        "the client's training images if not given.",
    ),
]


def frequencies_of(given: str | None) -> dict[str, float] | None:
    """Shares or numbers of images by class: written out, of a JSON object, or of a table *.csv (class,share)."""
    from fedotp.data import read_lines

    if given is None:
        return None
    path = Path(given).expanduser()
    pairs: list[tuple[Any, ...]]
    if not os.path.isfile(path):
        pairs = [part.rpartition("=")[::2] for part in given.split(",")]
    else:
        lines = read_lines(path)
        pairs = _of_json(given, lines) if path.suffix == ".json" else [(*row, "")[:2] for row in csv.reader(lines)]
        pairs = [pair for pair in pairs if pair != ("class", "share")]
    found: dict[str, float] = {}
    for name, share in pairs:
        if name.strip() in found:
            raise FedotpError(f"--frequencies {given}: {name.strip()!r} is given twice")
        try:
            found[name.strip()] = float(share)
        except (TypeError, ValueError):
            raise FedotpError(
                f"--frequencies {given}: {name.strip()!r} needs a share or a number of images, for example "
                "normal=0.9,pneumonia=0.1; a table has the columns class,share"
            ) from None
    return found


def _of_json(given: str, lines: list[str]) -> list[tuple[Any, ...]]:
    try:
        found = parse_json("\n".join(lines))
    except ValueError as error:
        raise FedotpError(f"--frequencies {given}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise FedotpError(f'--frequencies {given}: must be an object, for example {{"normal": 0.9, "pneumonia": 0.1}}')
    return list(found.items())


class ScoreName(StrEnum):
    """What prediction sets are made by."""

    lac = "lac"
    aps = "aps"


ScoreOption = Annotated[
    ScoreName, typer.Option(help="What sets are made by: lac, the smallest on average, or aps, which adapt more.")
]

# Data and weights ----------------------------------------------------------------------------------------------

DatasetArgument = Annotated[
    str,
    typer.Argument(
        help="A name from `fedotp data list`, a folder of images, a table *.csv, or hf:<path>.",
        autocompletion=_complete.datasets,
    ),
]
RootOption = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets; $FEDOTP_CACHE/data or the user's cache if not given."),
]
GroupsOption = Annotated[
    str, typer.Option(help="A regular expression that finds patients or parts in paths, as data.groups.")
]
SiteOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Take the images of this site only: of a table's column site, or a domain's."),
]
WindowOption = Annotated[
    str, typer.Option(metavar="WINDOW", help="How greys of more than 8 bits are mapped to 8, as data.window.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Decoding threads; by default as the cores allow.")]


def config_of(dataset: str, root: Path | None, changes: list[str] | None) -> "Config":
    """The configuration of a run on `dataset`, with the paper's settings but for `changes`."""
    from fedotp.config import Config, DataSettings

    return Config(DataSettings(dataset, root="" if root is None else str(root))).override(changes or [])


class Precision(StrEnum):
    """Floating-point formats, of stored weights and of a tower's computation."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


# Real sites ----------------------------------------------------------------------------------------------------

connection_option = partial(typer.Option, rich_help_panel="Connection")
KeysOption = Annotated[
    Path | None,
    connection_option("--keys", metavar="DIR", help="The folder that `fedotp keys make` made for this place."),
]
InsecureOption = Annotated[
    bool,
    connection_option("--insecure", help="No encryption and no keys: for trials on one machine, never for patients."),
]


def require_keys(keys: Path | None, insecure: bool, where: str) -> None:
    """Refuse both --keys and --insecure, and neither; `where` says which folder to give."""
    if (keys is None) != insecure:
        raise FedotpError(
            f"give --keys DIR{where}"
            + (", or --insecure, and not both" if insecure else "; --insecure needs none, on one machine only")
        )


def need_posix(command: str) -> None:
    """Refuse `command` on Windows: file modes protect keys and private prompts, signals stop a site cleanly."""
    if sys.platform == "win32":
        raise FedotpError(
            f"fedotp {command} needs Linux or macOS: on Windows no file modes protect keys and private prompts; "
            "WSL is Linux, and `fedotp run` simulates a federation here"
        )
