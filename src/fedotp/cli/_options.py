"""Arguments and options shared by several commands."""

import csv
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp._files import read_json
from fedotp.cli import _complete
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.config import Config
    from fedotp.flower.status import StatusAddress
    from fedotp.runs.directory import RunDirectory

# Any command ---------------------------------------------------------------------------------------------------

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result, no progress.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
DEVICE = "auto"
DeviceOption = Annotated[str, typer.Option(help="Device: cpu, cuda:1 ...; auto uses a GPU if available.")]
BackboneOption = Annotated[
    str | None, typer.Option(help="File of the backbone's weights, if the path in the run is not valid here.")
]

LogFormatOption = Annotated[
    str, typer.Option(metavar="FORMAT", help="Format of the log on standard error: text, or json (an object per line).")
]
LOG_FORMAT = "text"

# Configurations ------------------------------------------------------------------------------------------------

SOURCE = "demo"
SourceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PRESET|FILE",
        help=f"A preset (see `fedotp presets`) or a *.toml file; default: {SOURCE}.",
        autocompletion=_complete.sources,
    ),
]
SourceOrRunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PRESET|FILE|RUN",
        help=f"A preset, a *.toml file, or the directory of a run; default: {SOURCE}.",
        autocompletion=_complete.sources_or_runs,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, for example method.mass=0.5; repeatable.",
        autocompletion=_complete.assignments,
    ),
]
OutOption = Annotated[Path | None, typer.Option(help="Directory of the new run; default: a free name in runs/.")]
METHODS = "fedotp,promptfl,coop,zeroshot"  # to compare

# Many runs -----------------------------------------------------------------------------------------------------


JobsOption = Annotated[
    int, typer.Option(min=1, help="Number of parallel processes; with several GPUs, each process uses its own.")
]

_MOST = 10_000  # maximum number of seeds or splits in a range: each is a run

SeedsOption = Annotated[str, typer.Option(help="Seeds, for example 0,1,2 or 0..11.")]
SplitsOption = Annotated[str | None, typer.Option(help="Data splits, for example 0..5; default: only partition.seed.")]
ControlsOption = Annotated[
    bool, typer.Option("--controls", help="Also train each method on shuffled labels, as a control.")
]


def whole_numbers(text: str, option: str) -> list[int]:
    """Parse numbers and ranges such as "0,1,5..7"."""
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
            f"{option} {text}: must be whole numbers and ranges separated by commas, for example 0,1,2 or 0..11"
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
        metavar="RUN...", help="Directories of runs, or folders that contain runs.", autocompletion=_complete.runs
    ),
]
_CLIENT = "Name of a client in the run"
ClientOption = Annotated[str | None, typer.Option(metavar="NAME", help=f"{_CLIENT}.")]
ClientsOption = Annotated[list[str] | None, typer.Option("--client", metavar="NAME", help=f"{_CLIENT}; repeatable.")]


def runs_at(paths: Sequence[Path]) -> "list[RunDirectory]":
    """Expand folders into the runs they contain, without duplicates."""
    from fedotp.runs.directory import RunDirectory, find_runs

    found: dict[Path, RunDirectory] = {}
    for path in paths:
        is_run = (path / "config.toml").is_file() or not path.is_dir()
        runs = [RunDirectory.open(path)] if is_run else find_runs(path)
        if not runs:
            raise FedotpError(f"no runs in {path}; create one with `fedotp run`")
        for run in runs:
            with run.reading():
                run.require_method()  # fails once here, not again for each figure or table
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


# Classifiers ---------------------------------------------------------------------------------------------------

ClassifierArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|BUNDLE",
        help="Directory of a run, or a bundle from `fedotp export`.",
        autocompletion=_complete.runs,
    ),
]
CalibrateOption = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER|test",
        help="Calibrate with test images of the client: a folder, a table, or test for the run's own test images.",
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(metavar="NAMES|FILE", help="Class names separated by commas, or a file with one name per line."),
]


def class_names(given: str) -> list[str]:
    """Parse class names: separated by commas, or the lines of a file."""
    from fedotp.data import read_lines

    path = os.path.expanduser(given)
    if "," not in given and (os.sep in given or given.endswith(".txt")) and not os.path.isfile(path):
        raise FedotpError(f"{given}: no such file")
    return (
        read_lines(Path(path)) if os.path.isfile(path) else [name.strip() for name in given.split(",") if name.strip()]
    )


_MOST_BYTES = 16 << 20  # of a file of frequencies

PriorOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=10,
        metavar="STRENGTH",
        help="Strength of the class prior: 0 for none, 1 for Bayes' rule; default: that of the run.",
    ),
]
FrequenciesOption = Annotated[
    str | None,
    typer.Option(
        metavar="SHARES|FILE",
        help="Class frequencies for the prior, for example normal=0.9,pneumonia=0.1, or a *.csv or *.json file; "
        "default: those of the client's training images.",
    ),
]


def frequencies_of(given: str | None) -> dict[str, float] | None:
    """Parse shares or numbers of images by class from text, a JSON object or a *.csv table (class,share)."""
    from fedotp.data import read_lines

    if given is None:
        return None
    path = Path(given).expanduser()
    pairs: list[tuple[Any, ...]]
    if not os.path.isfile(path):
        pairs = [part.rpartition("=")[::2] for part in given.split(",")]
    else:
        if path.suffix == ".json":
            shares = read_json(path, _MOST_BYTES)
            if not isinstance(shares, dict):
                right = 'an object, for example {"normal": 0.9, "pneumonia": 0.1}'
                raise FedotpError(f"--frequencies {given}: must be {right}")
            pairs = list(shares.items())
        else:
            pairs = [(*row, "")[:2] for row in csv.reader(read_lines(path))]
        pairs = [pair for pair in pairs if pair != ("class", "share")]
    found: dict[str, float] = {}
    for name, share in pairs:
        if name.strip() in found:
            raise FedotpError(f"--frequencies {given}: {name.strip()!r} is given twice")
        try:
            found[name.strip()] = float(share)
        except (TypeError, ValueError):
            raise FedotpError(
                f"--frequencies {given}: {name.strip()!r} must have a share or a number of images, for example "
                "normal=0.9,pneumonia=0.1; a table must have the columns class,share"
            ) from None
    return found


class ScoreName(StrEnum):
    """Conformal scores."""

    lac = "lac"
    aps = "aps"


ScoreOption = Annotated[ScoreName, typer.Option(help="Conformal score: lac (smallest sets) or aps (adaptive).")]

# Data and weights ----------------------------------------------------------------------------------------------

DatasetArgument = Annotated[
    str,
    typer.Argument(
        help="A name from `fedotp data list`, a folder of images, a *.csv table, or hf:<path>.",
        autocompletion=_complete.datasets,
    ),
]
RootOption = Annotated[
    Path | None, typer.Option(help="Folder of the data sets; default: $FEDOTP_CACHE/data or the user's cache.")
]
GroupsOption = Annotated[
    str, typer.Option(help="Regular expression that finds the patient or other group in a path, as data.groups.")
]
SiteOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Use only the images of this site (column site of a table) or domain."),
]
WindowOption = Annotated[
    str, typer.Option(metavar="WINDOW", help="Range of grey values to map to 8 bits, as data.window.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Decoding threads; default: from the number of cores.")]


def config_of(dataset: str, root: Path | None, changes: list[str] | None) -> "Config":
    """Return the configuration of a run on `dataset`: the paper's settings with `changes`."""
    from fedotp.config import Config, DataSettings

    return Config(DataSettings(dataset, root="" if root is None else str(root))).override(changes or [])


class Precision(StrEnum):
    """Floating-point formats of stored weights and computation."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


# Real sites ----------------------------------------------------------------------------------------------------

connection_option = partial(typer.Option, rich_help_panel="Connection")
KeysOption = Annotated[
    Path | None,
    connection_option("--keys", metavar="DIR", help="Key folder from `fedotp keys make` for this server or site."),
]
InsecureOption = Annotated[
    bool,
    connection_option("--insecure", help="No encryption, no keys: for tests on one machine, never with patient data."),
]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Only check whether everything is ready, a line per item; do not start.")
]

StatusOption = Annotated[
    str | None,
    connection_option(
        metavar="HOST:PORT", help="Serve a status page, /metrics and /healthz here, e.g. 127.0.0.1:9100."
    ),
]
StatusTokenOption = Annotated[
    Path | None,
    connection_option(
        metavar="FILE",
        help="Token for the status; required if other machines can reach its address.",
        show_default=False,
    ),
]


def status_of(address: str | None, token: Path | None) -> "StatusAddress | None":
    """Parse --status and --status-token."""
    from fedotp.flower.status import StatusAddress

    if address is None and token is not None:
        raise FedotpError("--status-token needs --status HOST:PORT; give both")
    return None if address is None else StatusAddress.parse(address, token)


def require_keys(command: str, keys: Path | None, insecure: bool, where: str) -> None:
    """Require exactly one of --keys and --insecure, and Flower; `where` describes the folder to give."""
    from fedotp.flower import need_flower

    need_posix(command)
    need_flower()
    if (keys is None) != insecure:
        instead = "; it cannot be combined with --insecure" if insecure else ", or --insecure for tests on one machine"
        raise FedotpError(f"give --keys DIR{where}{instead}")


def need_posix(command: str) -> None:
    """Raise an error on Windows, which lacks file modes to protect keys and signals to stop a site cleanly."""
    if sys.platform == "win32":
        raise FedotpError(
            f"fedotp {command} needs Linux or macOS: Windows has no file modes to protect keys and private prompts; "
            "use WSL, or simulate a federation with `fedotp run`"
        )
