"""`fedotp run`, `evaluate`, `runs`, `presets` and `config` on a tiny federation."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
from cli_made import Fedotp, started
from rich.console import Console

from fedotp import RunDirectory, load_config, run
from fedotp.cli import progress
from fedotp.cli.show import print_numbers, printable
from fedotp.config import Config
from fedotp.data.partition import Partition
from invented_run import invent_run
from own_process import python

OUT = "runs/images-fedotp-domain-dirichlet-seed0"


def test_advice_is_printed_and_its_command_runs(place: Path, fedotp: Fedotp) -> None:
    printed = fedotp("advise", "tiny.toml", "--set", "partition.seed=1")
    assert printed.status == 0, printed.err
    assert not (place / "runs").exists()
    found = json.loads(fedotp("advise", "tiny.toml", "--set", "partition.seed=1", "--json").out)
    for name, accuracy in found["accuracy"].items():
        assert re.search(rf"^{re.escape(name)} +{100 * accuracy:.2f} ", printed.out, re.MULTILINE)
    for sentence in found["sentences"]:
        assert sentence in printed.out.splitlines()
    assert [site["name"] in printed.out for site in found["sites"]] == [True] * 4
    (line,) = re.findall("^next +fedotp (.*)", printed.out, re.MULTILINE)
    assert fedotp(*shlex.split(line), "--out", "next").status == 0
    done, asked = RunDirectory.open("next").config, load_config("tiny.toml").override(found["settings"])
    assert (done.method, done.partition.seed, done.evaluation) == (asked.method, 1, asked.evaluation)


def test_run_prints_a_line_per_evaluation_and_the_numbers_at_the_end(place: Path, fedotp: Fedotp) -> None:
    done = fedotp("run", "tiny.toml", "--set", "federation.holdout_clients=1", "--set", "compute.group_size=1")
    assert done.status == 0
    directory = RunDirectory.open(OUT)
    assert directory.config.compute.group_size == 1
    assert directory.config.federation.holdout_clients == 1
    rounds = [line for line in done.err.splitlines() if line.startswith("round ")]
    assert [re.sub(r"\d+\.\d+|\d[\d,]*(?= images/s)", "#", line) for line in rounds] == [
        "round 0 of 2: accuracy # % ± #",
        "round 1 of 2: accuracy # % ± #, loss #, # images/s",
        "round 2 of 2: accuracy # % ± #, loss #, # images/s",
    ]
    summary = directory.summary
    lines = done.out.splitlines()
    assert lines[0] == "FedOTP on images, 3 clients, 2 rounds"
    assert lines[1].split()[:4] == ["mean", "accuracy", f"{100 * summary['final']['accuracy']:.2f}", "%"]
    names = [line[:21].strip() for line in lines[1:16]]
    for name in (
        *summary["domains"],
        "best",
        "last 2",
        "worst decile",
        "majority class",
        "zero-shot CLIP",
        "joined later",
    ):
        assert name in names
    assert lines[-3:] == [
        f"run   {OUT}",
        f"next  fedotp runs show {OUT}",
        "      fedotp compare tiny.toml --methods fedotp,promptfl,coop,zeroshot --set federation.holdout_clients=1 "
        "--set compute.group_size=1",
    ]


def test_a_run_reads_the_partition_that_data_partition_saved(place: Path, made: Path, fedotp: Fedotp) -> None:
    chosen = ("scheme=dirichlet", "n_clients=3", "alpha=0.9", "seed=5")
    words = [word for each in chosen for word in ("--set", f"partition.{each}")]
    assert fedotp("data", "partition", made / "images", *words, "--out", "who.json").status == 0
    done = fedotp("run", "tiny.toml", "--partition", "who.json", "--out", "here", "--quiet")
    assert done.status == 0, done.err
    run, saved = RunDirectory.open("here"), Partition.load(Path("who.json"))
    assert run.partition.digest == saved.digest == run.manifest["partition"]
    assert run.config.partition == saved.settings
    assert run.manifest["clients"] == [client.name for client in saved.clients]
    again = fedotp("evaluate", "here", "--quiet", "--json")
    assert json.loads(again.out)["accuracy"] == run.summary["final"]["accuracy"]
    both = fedotp("run", "tiny.toml", "--partition", "who.json", "--set", "partition.seed=1")
    assert both.err == "error: --partition who.json already defines the partition; remove --set partition.*\n"
    other = fedotp("run", "tiny.toml", "--partition", "who.json", "--set", f"data.dataset={made}/images/day", "--quiet")
    assert other.err.startswith(f"error: the partition is of images {saved.data_digest[:12]}, but the data set is day")


def test_json_is_nothing_but_json_lines(place: Path, fedotp: Fedotp) -> None:
    done = fedotp("run", "tiny.toml", "--json", "--out", "here")
    records = [json.loads(line) for line in done.out.splitlines()]
    kinds = ["start", "evaluation", "round", "evaluation", "round", "evaluation", "summary"]
    assert [record["kind"] for record in records] == kinds
    assert done.err == ""
    directory = RunDirectory.open("here")
    assert records[0] == {"kind": "start", "run": "here", "round": 0, "rounds": 2}
    written = [{k: v for k, v in record.items() if k != "seconds"} for record in directory.metrics()]
    assert [{k: v for k, v in record.items() if k != "seconds"} for record in records[1:-1]] == written
    assert records[-1] == {"kind": "summary", "run": "here", **directory.summary}


def test_resuming_what_is_complete_changes_nothing(here: RunDirectory, fedotp: Fedotp) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path("here").glob("*")}
    done = fedotp("run", "--resume", "here")
    assert done.status == 0
    assert "mean accuracy" in done.out
    assert {path: path.stat().st_mtime_ns for path in Path("here").glob("*")} == before


def test_ctrl_c_ends_the_round_and_the_resumed_run_is_the_same(place: Path, fedotp: Fedotp) -> None:
    """A real process, a real signal."""
    words = ["tiny.toml", "--set", "federation.rounds=80", "--set", "evaluation.every=0", "--json"]
    process = started("run", *words, "--out", "here", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if '"round":3,' in line:
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    last = json.loads(out.splitlines()[-1])
    assert last["kind"] == "interrupted"
    assert 3 <= last["round"] < 80
    assert err.splitlines() == [
        f"stopped after a complete round; {last['round']} of 80 rounds are done",
        "continue with: fedotp run --resume here",
    ]
    listed = fedotp("runs", "list", ".").out.splitlines()
    assert listed[1].split()[1:3] == ["stopped", f"{last['round']}/80"]
    assert fedotp("runs", "show", "here").out.endswith("\ncontinue  fedotp run --resume here\n")

    assert fedotp("run", "--resume", "here", "--quiet").status == 0
    never = run(load_config("tiny.toml").override([words[2], words[4]]), "never-stopped")
    resumed = RunDirectory.open("here")
    for kind in ("round", "evaluation"):
        pairs = zip(resumed.metrics(kind), never.metrics(kind), strict=True)
        assert all({**a, "seconds": 0} == {**b, "seconds": 0} for a, b in pairs)
    for key in never.summary:
        assert key == "seconds" or resumed.summary[key] == never.summary[key]


def test_an_interrupt_before_the_first_round_leaves_nothing(
    place: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedotp.runs.one._run.prepare", interrupted)
    done = fedotp("run", "tiny.toml", "--out", "here")
    assert done.status == 130
    assert done.err == "stopped before the first round: no run was created; encoded images are reused\n"
    assert not Path("here").exists()


def test_what_a_run_killed_before_its_start_left_is_no_hindrance(place: Path, fedotp: Fedotp) -> None:
    Path("here").mkdir()
    for name in ("manifest.json", "partition.json", ".config.toml.123.tmp"):
        Path("here", name).write_text("{")
    assert fedotp("run", "tiny.toml", "--out", "here", "--quiet").status == 0
    Path("there").mkdir()
    Path("there/partition.json").write_text("mine")
    assert fedotp("run", "tiny.toml", "--out", "there").err == "error: there already exists; choose another --out\n"


def test_the_live_display_leaves_the_terminal_as_it_was(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=80, file=open("screen", "w"))  # noqa: SIM115
    with progress.LiveDisplay(console) as display:
        monkeypatch.setattr(display, "_encoding", types.SimpleNamespace(show=lambda *_: None, close=lambda: None))
        run(load_config("tiny.toml"), "here", observer=display)
        display.on_interrupt()
        display._bar.refresh()
    console.file.close()
    screen = Path("screen").read_text()
    assert "round 1 of 2" in screen
    assert "accuracy" in screen
    assert "images/s" in screen
    assert "Ctrl-C: finishing this round" in screen
    assert screen.count("\x1b[?25l") == screen.count("\x1b[?25h") == 1  # the cursor is back


@pytest.mark.parametrize(
    ("option", "module", "what"),
    [
        ("tensorboard", "torch.utils.tensorboard", "TensorBoard"),
        ("wandb", "wandb", "W&B"),
        ("mlflow", "mlflow", "MLflow"),
    ],
)
def test_trackers_that_are_not_installed_are_one_line(
    option: str, module: str, what: str, place: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = fedotp("run", "tiny.toml", "--out", "here", f"--{option}")
    assert done.status == 2
    assert done.err == f"error: {what} is not installed; install it with: pip install 'fedotp[{option}]'\n"
    assert not Path("here").exists()


def test_evaluate(here: RunDirectory, fedotp: Fedotp) -> None:
    final = here.summary["final"]
    before = {path: path.read_bytes() for path in Path("here").rglob("*") if path.is_file()}
    shown = fedotp("evaluate", "here")
    assert shown.out.splitlines()[0] == "FedOTP on images, 4 clients, 2 rounds"
    assert re.search(rf"^mean accuracy +{100 * final['accuracy']:.2f} %", shown.out, re.MULTILINE)
    again = json.loads(fedotp("evaluate", "here", "--json").out)
    assert {key: again[key] for key in final} == pytest.approx(final)
    other = fedotp("evaluate", "here", "--json", "--set", "method.rule=average")
    assert json.loads(other.out)["changes"] == ["method.rule=average"]
    assert json.loads(other.out)["loss"] != again["loss"]
    assert {path: path.read_bytes() for path in Path("here").rglob("*") if path.is_file()} == before


def test_runs_list_and_show(trained: RunDirectory, place: Path, fedotp: Fedotp) -> None:
    assert fedotp("runs", "list").err.startswith("error: runs is not a folder;")
    shutil.copytree(trained.path, "runs/one")
    fedotp("run", "tiny.toml", "--quiet", "--set", "seed=1", "--out", "runs/other")
    Path("runs/damaged").mkdir()
    for name in ("config.toml", "manifest.json"):
        Path("runs/damaged", name).write_text("{")
    (place / "not-a-run").mkdir()
    (place / "not-a-run" / "config.toml").write_text("")
    *listed, why = fedotp("runs", "list").out.splitlines()
    assert why.startswith("unreadable: cannot read runs/damaged/manifest.json: ")
    assert [line.split()[-1] for line in listed] == ["run", "runs/damaged", "runs/one", "runs/other"]
    assert listed[1].split()[1] == "unreadable"
    assert listed[2].split()[1:3] == ["complete", "2/2"]
    damaged, one, _ = (json.loads(line) for line in fedotp("runs", "list", "--json").out.splitlines())
    assert (damaged["run"], damaged["state"]) == ("runs/damaged", "unreadable")
    assert "manifest.json" in damaged["error"]
    assert (one["run"], one["state"], one["round"], one["rounds"]) == ("runs/one", "complete", 2, 2)
    assert json.loads(fedotp("runs", "show", "runs/one", "--json").out) == {
        **one,
        "manifest": trained.manifest,
        "summary": trained.summary,
    }

    shown = fedotp("runs", "show", "runs/one").out
    assert "FedOTP (Li et al., CVPR 2024)" in shown
    assert "server optimizer" not in shown
    for client in trained.summary["clients"]:
        assert f"{client['name']}  " in shown


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "metrics.jsonl"])
def test_one_run_that_cannot_be_read_does_not_hide_the_others(name: str, tmp_path: Path, fedotp: Fedotp) -> None:
    for each in ("bad", "good"):
        invent_run(tmp_path / each)
    for content in ("[" * 100_000 + "\n", "a = " + "[" * 100_000, '{"a": []}\n'):
        (tmp_path / "bad" / name).write_text(content)
        done = fedotp("runs", "list", tmp_path)
        assert done.status == 0, done.err
        _, bad, good, why = done.out.splitlines()
        assert bad.split()[1] == "unreadable"
        assert good.split()[1] == "complete"
        assert why.startswith("unreadable: ")
        assert str(tmp_path / "bad") in why
        shown = fedotp("runs", "show", tmp_path / "bad")
        assert shown.status == 2, shown.err
        assert shown.err.count("\n") == 1


def test_a_configuration_is_printed_with_what_keys_mean(fedotp: Fedotp) -> None:
    done = fedotp("config", "demo", "--set", "optimizer.lr=0.2")
    assert done.status == 0
    assert "\nlr = 0.2\n" in done.out
    assert 'name = "own"  # "sgd" for fedotp\n# learning rate eta, or the source' in done.out
    assert '\nlr = "mini"  # 0.003 for pfedmoap\n' in fedotp("config", "demo", "--set", "method.name=pfedmoap").out
    assert Config.from_dict(tomllib.loads(done.out)) == Config.preset("demo").override(["optimizer.lr=0.2"])


def test_the_configuration_of_a_run(here: RunDirectory, fedotp: Fedotp) -> None:
    assert Config.from_dict(tomllib.loads(fedotp("config", "here").out)) == here.config


@pytest.mark.parametrize("name", ["[bold]green", "\x1b[2J", "a\nb", "\udcff"])
def test_names_cannot_harm_a_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = dict.fromkeys(("accuracy", "accuracy_std", "accuracy_worst_decile", "macro_f1"), 0.5)
    print_numbers({"final": numbers, "domains": {name: {"accuracy": 0.5, "accuracy_std": 0.0, "clients": 1}}})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith(f"  {printable(name)}")
    assert printable(name).isprintable()


BEGINNING_AND_END = """
import atexit, gc, os, sys
sys.argv = ["fedotp", "--version"]
atexit.register(lambda: print(os.environ.get("OMP_WAIT_POLICY"), gc.get_freeze_count() > 0))
from fedotp.cli import main
assert "torch" not in sys.modules
main()
"""


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active"), ({"GOMP_SPINCOUNT": "9"}, "None")],
)
def test_threads_wait_passively_by_default_and_the_end_is_quick(chosen: dict[str, str], expected: str) -> None:
    done = python("-c", BEGINNING_AND_END, **{"OMP_WAIT_POLICY": None, **chosen})
    assert done.stdout.split()[1:] == [expected, "True"]
