"""Bad input through the real command line: one line, exit status 2, nothing written, nothing overwritten."""

import shutil
from pathlib import Path

import pytest
from cli_made import Fedotp

from fedotp import RunDirectory


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


# What is typed, and how the one line begins that is printed.
CASES = {
    # run and evaluate
    "run offise": "unknown preset 'offise'; did you mean 'office'?",
    "run broken.toml": "broken.toml: not valid TOML: Expected '=' after a key",
    "run tiny.toml --set prompt.n_ctx=1000": "class name '[bold]green' is too long: 4 tokens and 1000 context vectors",
    "run tiny.toml --set data.dataset=nowhere": "'nowhere' is neither a known data set nor a folder",
    "run tiny.toml -q --set data.dataset=spoilt": "spoilt: 1 broken images, first spoilt/day/red/broken.png (zero",
    "run tiny.toml --set compute.device=cuda:99": "compute.device = 'cuda:99' cannot be used here: ",
    "run tiny.toml --out full": "full already exists; choose another --out",
    "run tiny.toml --out done": "done already exists; resume it with `fedotp run --resume done`, or choose another",
    "run --resume done --set seed=1": "--resume uses the run's own configuration and directory: remove PRESET",
    "run tiny.toml --set data.windows=x=full --set data.dataset={made}/images": "images has no site 'x'; its sites",
    "run --resume nowhere": "nowhere is not a run: it has no config.toml; list runs with `fedotp runs list`",
    f"run tiny.toml --out {'x' * 300}": f"File name too long: {'x' * 60} ...; choose a shorter one",
    "evaluate done --set federation.rounds=7": "--set federation.rounds: has no effect on an evaluation; set only",
    "evaluate done -q --set backbone.name={made}/other.safetensors": "done: backbone changed since",
    "evaluate done --set method.name=coop": "done/state/checkpoint.safetensors belongs to another federation: it",
    "evaluate damaged": "cannot read damaged/manifest.json: Expecting property name enclosed in double quotes",
    # runs, config, figures, report
    "runs list --import some/folder": "--import some/folder: must be a .py file or a module",
    "figures done --only against": "--only against needs --against KEY",
    "figures done --only tsne": "no t-SNE: at least 5 clients",
    "report empty": "no runs in empty; create one with `fedotp run`",
    # compare and sweep
    "compare tiny.toml --methods fedotp:mas=1": "--methods fedotp:mas=1: unknown key method.mas; did you mean",
    "compare tiny.toml --methods fedotp:partition.seed=3": "--methods fedotp:partition.seed=3: all methods must",
    "compare tiny.toml --methods coop,coop": "coop,seed=0 is given twice; remove one of them",
    "compare tiny.toml --methods coop --against fedotp": "--against fedotp: must be one of --methods, with its options",
    "compare tiny.toml --methods fedotp --seeds 0 --out swept --set federation.rounds=9": (
        "swept/fedotp,seed=0 is a run of another configuration: federation.rounds is 2 there, 9 here; "
    ),
    "sweep tiny.toml": "give the settings to vary, for example --grid method.mass=0.5,0.7,0.9",
    # clients
    "predict done {image}": "give the name of a client with --client; its",
    "predict done {image} --client who": "done has no client 'who'; its clients are",
    "predict done {image} --client {client} --csv --json": "--json and --csv exclude each other: remove one",
    "predict done {image} --client {client} --set seed=1": "--set seed=1: only method.mass and method.dial",
    "predict done {image} --client {client} --device warp": "compute.device = 'warp' cannot be used",
    "predict done {image} --client {client} --coverage 0.9 --set method.mass=0.5": "--coverage is valid only for",
    "calibrate done {made}/images": "done is not a bundle",
    "serve nowhere": "nowhere is neither a run nor a bundle",
    "join done --data {made}/images --name ../../x": "--name '../../x': must be a valid folder name",
    "join done --data mauve": "mauve has the class 'mauve', which is unknown to the run; its classes are [bold]green",
    "forget": "give a run and clients, for example `fedotp forget runs/demo --client client-3`; see --help",
    "forget done --check x": "--check needs only a certificate: remove RUN, --client and --out",
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
    for kind in ("red", "mauve"):
        (folder / "mauve").mkdir(exist_ok=True)
        (folder / "mauve" / kind).symlink_to(made / "images" / "day" / "red")
    (folder / "full").mkdir()
    (folder / "full" / "precious.txt").write_text("mine")
    (folder / "broken.toml").write_text("not toml")
    (folder / "tiny.toml").write_text((made / "tiny.toml").read_text())
    return folder


@pytest.mark.parametrize("line", CASES)
def test_bad_input(
    line: str, runs: Path, made: Path, client: str, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    before = files(runs)
    names = {"made": made, "client": client, "image": made / "images" / "day" / "red" / "0.png"}
    done = fedotp(*(word.format(**names) for word in line.split()))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {CASES[line].format(**names)}")
    assert done.err.count("\n") == 1
    assert files(runs) == before
