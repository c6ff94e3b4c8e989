"""Bad input through the real command line: one line, exit status 2, nothing written, nothing overwritten."""

import shutil
from pathlib import Path

import pytest
from cli_made import Done, Fedotp

from fedotp import RunDirectory, methods
from fedotp.clip import load
from fedotp.config import presets
from fedotp.data import DATASETS

FILES = dict[Path, bytes]


def files(folder: Path) -> FILES:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def digests(made: Path) -> dict[str, str]:
    return {name: load(made / f"{name}.safetensors").digest[:12] for name in ("tiny", "other")}


def check(done: Done, right: str) -> None:
    assert done.out == ""
    if right.endswith("..."):  # what follows depends on the machine
        assert done.err.startswith(f"error: {right.removesuffix('...')}")
        assert done.err.count("\n") == 1
    else:
        assert done.err == f"error: {right}\n"
    assert done.status == 2


PRESETS = ", ".join(presets())
METHODS = f"{', '.join(methods.METHODS)} or one of your own with --import FILE.py"
NO_DATA = f"unknown data set 'nowhere', and there is no such folder here (data sets: {', '.join(DATASETS)})"
DAMAGED = (
    "cannot read damaged/manifest.json: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
)
CASES = {
    "run offise": f"unknown preset 'offise'; did you mean 'office'? ({PRESETS}; or a file whose name ends in .toml)",
    "run missing.toml": "missing.toml: no such file",
    "run broken.toml": (
        "broken.toml: not valid TOML: Expected '=' after a key in a key/value pair (at line 1, column 5)"
    ),
    "evaluate done --set federation.rounds=7 --set optimizer.lr=1": (
        "--set federation.rounds, optimizer.lr: has no effect, as nothing is trained to evaluate a run; what may be "
        "set are method.*, evaluation.* and compute.*"
    ),
    "run tiny.toml --set method.mas=0.5": "--set: unknown key method.mas; did you mean method.mass?",
    "run tiny.toml --set method.mass=1.5": "--set: method.mass = 1.5: must be from 1e-06 to 1 (the paper uses 0.8)",
    "run tiny.toml --set method.n_shared=9223372036854775807": (
        "--set: method.n_shared = 9223372036854775807 and method.n_private = 1: neither may be negative, and together "
        "there must be from 1 to 256 prompts"
    ),
    "run tiny.toml --set prompt.n_ctx=1000": (
        "class name '[bold]green' is too long: 4 tokens and 1000 context vectors need 1007 positions and the text "
        "tower has 77; shorten the name or lower n_ctx"
    ),
    "run tiny.toml --set data.dataset=nowhere": NO_DATA,
    "run tiny.toml --set data.dataset=empty": "no image in empty; add some or remove the folder",
    "run tiny.toml --quiet --set data.dataset=spoilt": (
        "spoilt: 1 broken images, first spoilt/day/red/broken.png (zero bytes); `fedotp data check` lists them; a "
        "run goes on without them with --set data.skip_broken=true, `fedotp data` with --skip-broken"
    ),
    "run tiny.toml --set data.dataset=alone": (
        "alone: all images are of one class, 'red', and there is nothing to tell apart; a folder per class is needed "
        "(`fedotp data info` shows what was found)"
    ),
    "run tiny.toml --set partition.scheme=pathological --set partition.n_clients=3 --set partition.shots=99": (
        "pathological: 99 shots, but class 'blue' has only 12 training images; use shots <= 12"
    ),
    "run tiny.toml --set compute.device=cuda:99": "compute.device = 'cuda:99' cannot be used here: ...",
    "run tiny.toml --out full": "full exists already; choose another --out",
    "run tiny.toml --out done": (
        "done exists already; resume it with `fedotp run --resume done`, or choose another --out"
    ),
    **dict.fromkeys(
        [
            f"{words} {'x' * 300}"
            for words in ("run tiny.toml --out", "compare tiny.toml --out", "run --resume", "report", "runs show")
        ],
        f"File name too long: {'x' * 60} ...; choose a shorter one",
    ),
    "run --resume done --set seed=1": (
        "--resume uses the configuration and the directory of the run it names: leave out PRESET|FILE, "
        "--set, --out and --partition"
    ),
    "run --resume nowhere": "nowhere is not a run: it has no config.toml; `fedotp runs list` lists the runs",
    "evaluate done --quiet --set backbone.name={made}/other.safetensors": (
        "done: the run began with backbone {made}/tiny.safetensors {tiny}, but now it is {made}/other.safetensors "
        "{other}; give the one it began with"
    ),
    "evaluate done --set method.name=coop": (
        "done/state/checkpoint.safetensors belongs to another federation: it holds {{'shared': (1, 2, 64)}} for 4 "
        "clients, this one has {{}} for 4"
    ),
    "evaluate done --set partition.seed=1": (
        "done: a run is evaluated on its own partition; leave partition.* out of --set"
    ),
    "evaluate damaged": DAMAGED,
    "runs show full": "full is not a run: it has no config.toml; `fedotp runs list` lists the runs",
    "runs show damaged": DAMAGED,
    "runs list nowhere": "nowhere is not a folder; `fedotp run` makes runs, in runs/ by default",
    "compare tiny.toml --methods fedopt": (
        f'--methods fedopt: method.name = "fedopt": must be {METHODS}; did you mean fedotp?'
    ),
    "compare tiny.toml --methods fedotp:mas=1": (
        "--methods fedotp:mas=1: unknown key method.mas; did you mean method.mass?"
    ),
    "compare tiny.toml --methods fedotp:partition.seed=3": (
        "--methods fedotp:partition.seed=3: all methods are compared on the same data; use --set for all of them"
    ),
    "compare tiny.toml --methods coop,coop": "coop,seed=0 is asked for twice; leave one of them out",
    "compare tiny.toml --seeds one": (
        "--seeds one: must be whole numbers and ranges, separated by commas, for example 0,1,2 or 0..11"
    ),
    "compare tiny.toml --seeds 5..2": (
        "--seeds 5..2: must be whole numbers and ranges, separated by commas, for example 0,1,2 or 0..11"
    ),
    "sweep tiny.toml --grid method.mass=0.5 --seeds 0..99999999999": (
        "--seeds 0..99999999999: must be whole numbers and ranges, separated by commas, for example 0,1,2 or 0..11"
    ),
    "compare tiny.toml --set data.dataset=nowhere": NO_DATA,
    "compare tiny.toml --methods fedotp --seeds 0 --out swept --set federation.rounds=9": (
        "swept/fedotp,seed=0 holds a run of another configuration: federation.rounds is 2 there, 9 here; "
        "choose another --out"
    ),
    "sweep tiny.toml": "say what to vary, for example --grid method.mass=0.5,0.7,0.9",
    "sweep tiny.toml --grid method.mass": (
        "--grid method.mass: must be key=value,value,..., for example method.mass=0.5,0.7,0.9"
    ),
    "sweep tiny.toml --grid seed=0,1": (
        "--grid seed=0,1: seeds are not an axis of the table; give them as --seeds 0,1"
    ),
    "sweep tiny.toml --grid method.mass=0.5,7": (
        "--grid method.mass=7: method.mass = 7.0: must be from 1e-06 to 1 (the paper uses 0.8)"
    ),
    "sweep tiny.toml --grid method.mass=0.5,0.50": ("method.mass=0.5,seed=0 is asked for twice; leave one of them out"),
    "sweep tiny.toml --grid method.mass=0.5 --grid method.mass=0.6": (
        "--grid method.mass=0.6: method.mass has been given already; put all its values into one --grid"
    ),
}


@pytest.fixture(scope="module")
def runs(trained: RunDirectory, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a complete run, a damaged one, a comparison, and things that are no runs."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("done", "damaged", "swept/fedotp,seed=0"):
        shutil.copytree(trained.path, folder / name)
    (folder / "damaged" / "manifest.json").write_text("{")
    (folder / "empty").mkdir()
    (folder / "spoilt" / "day" / "red").mkdir(parents=True)
    (folder / "spoilt" / "day" / "red" / "broken.png").touch()
    for path in (made / "images" / "day" / "red").iterdir():
        (folder / "spoilt" / "day" / "red" / path.name).symlink_to(path)
    (folder / "spoilt" / "day" / "blue").symlink_to(made / "images" / "day" / "blue")
    (folder / "spoilt" / "night").symlink_to(made / "images" / "night")
    (folder / "alone").mkdir()
    (folder / "alone" / "red").symlink_to(made / "images" / "day" / "red")
    (folder / "full").mkdir()
    (folder / "full" / "precious.txt").write_text("mine")
    (folder / "broken.toml").write_text("not toml")
    (folder / "tiny.toml").write_text((made / "tiny.toml").read_text())
    return folder


@pytest.mark.parametrize("line", CASES)
def test_bad_input(line: str, runs: Path, made: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    before = files(runs)
    done = fedotp(*(word.format(made=made) for word in line.split()))
    check(done, CASES[line].format(made=made, **digests(made)))
    assert files(runs) == before
