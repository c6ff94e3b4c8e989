"""A stranger's method, in a file outside the package or in a package of its own, works in every command."""

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_made import Fedotp, command

from fedotp import _imports
from fedotp.classifier import load
from fedotp.methods import METHODS, find_method, method_names, origin_of
from fedotp.runs.directory import RunDirectory
from own_process import python
from serve.serve_made import served
from stranger import NAME, TITLE, forget, install, write_method

pytestmark = pytest.mark.usefixtures("as_new")


@pytest.fixture(scope="module")
def method_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_method(tmp_path_factory.mktemp("a stranger's"))


@pytest.fixture(scope="module")
def trained(made: Path, method_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "run"
    config = made / "tiny.toml"
    done = command("run", config, "--set", f"method.name={NAME}", "--out", folder, "-q", "--import", method_file)
    assert done.status == 0, done.err
    forget()
    return folder


def test_the_option_may_be_before_or_after_the_command(trained: Path, method_file: Path, fedotp: Fedotp) -> None:
    origin = RunDirectory.open(trained).manifest["method"]["origin"]
    assert origin == {"file": str(method_file), "sha256": hashlib.sha256(method_file.read_bytes()).hexdigest()}
    words = ["runs", "show", trained]
    for place in range(4):
        forget()
        shown = fedotp("--import=json", *words[:place], f"--import={method_file}", *words[place:])
        assert shown.status == 0, shown.err
        assert TITLE in shown.out
        assert os.environ[_imports.VARIABLE] == f"json{os.pathsep}{method_file}"


def test_every_command_works_on_it(
    trained: Path, made: Path, place: Path, method_file: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_imports.VARIABLE, str(method_file))
    image = made / "images" / "day" / "blue" / "0.png"
    client = RunDirectory.open(trained).manifest["clients"][0]
    for words in (
        ["evaluate", trained],
        ["report", trained, "--out", "report.html"],
        ["export", trained, "--client", client, "--out", "bundle"],
        ["predict", "bundle", image, "--backbone", made / "tiny.safetensors"],
        ["join", trained, "--data", made / "images" / "night", "--epochs", 1],
        ["sweep", "tiny.toml", "--set", f"method.name={NAME}", "--grid", "method.strength=0.1,0.2", "--out", "sweep"],
    ):
        done = fedotp(*words)
        assert done.status == 0, (words, done.err)
    assert TITLE in (place / "report.html").read_text()
    with served(trained) as page:
        assert page.look(page.upload(image.read_bytes()), client, "blue").json["kinds"] == ["global"]


def test_without_the_method_one_line_names_the_option(trained: Path, made: Path, place: Path, fedotp: Fedotp) -> None:
    image = made / "images" / "day" / "blue" / "0.png"
    for words in (
        ["evaluate", trained],
        ["report", trained, "-q"],
        ["figures", trained],
        ["predict", trained, image],
        ["export", trained, "--out", "bundle"],
        ["serve", trained],
        ["join", trained, "--data", made / "images" / "night"],
    ):
        done = fedotp(*words)
        assert done.status == 2, words
        (line,) = done.err.splitlines()
        option = re.search(r"; give (--import .*), which defines it$", line)
        assert option is not None, line
    again = fedotp(*shlex.split(option[1]), "evaluate", trained)  # what it says works as said
    assert again.status == 0, again.err


def test_nothing_is_imported_because_a_run_names_it(trained: Path, fedotp: Fedotp) -> None:
    listed = fedotp("runs", "list", trained.parent)
    assert listed.status == 0
    assert re.search(rf"complete +2/2 +[\d.]+ +{TITLE} ", listed.out)
    assert "unreadable" not in listed.out
    assert fedotp("runs", "show", trained).status == 0
    assert NAME not in METHODS  # nothing is imported because a run names it
    assert not _imports._digests


@pytest.mark.parametrize(
    ("origin", "remedy"),
    [
        (None, "give --import FILE.py, which defines it"),
        ({"file": "a b.py\x1b[31m"}, "give --import 'a b.py\\x1b[31m', which defines it"),
        ({"module": "some.module", "file": "/module.py"}, "give --import some.module, which defines it"),
    ],
)
def test_a_forged_origin_is_words_only(
    origin: object, remedy: str, trained: Path, tmp_path: Path, fedotp: Fedotp
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    run = RunDirectory.open(tmp_path / "run")
    run.save_manifest({**run.manifest, "method": {**run.manifest["method"], "origin": origin}})
    done = fedotp("evaluate", run.path)
    assert done.status == 2
    assert done.err == f"error: {run.path}: unknown method {NAME}; {remedy}\n"


def test_a_run_whose_method_was_edited_is_not_gone_on_with(
    made: Path, tmp_path: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, run = write_method(tmp_path), tmp_path / "run"
    words = ["--import", file, "run", made / "tiny.toml", "--set", f"method.name={NAME}", "--out", run, "-q"]
    with monkeypatch.context() as patch:
        patch.setattr("fedotp.runs.one._loop.Loop.go", lambda self: None)  # begun, and killed at once
        assert fedotp(*words).status != 0
    file.write_text(file.read_text().replace("0.01", "0.02"))
    forget()
    refused = fedotp("run", "--resume", run, "--import", file, "-q")
    assert refused.status == 2
    assert f"its method {NAME} was edited: expected SHA-256 " in refused.err
    file.write_text(file.read_text().replace("0.02", "0.01"))
    forget()
    done = fedotp("run", "--resume", run, "--import", file, "-q")
    assert done.status == 0, done.err


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("def f(:\n", "SyntaxError: "),
        ("from fedotp.methods import METHODS\nMETHODS['moored'] = 3", "line 2: METHODS['moored'] must be a subclass"),
        (
            "from fedotp.methods import METHODS, FedOTP\nMETHODS['moored'] = FedOTP",
            "line 2: METHODS['moored']: its name must be 'moored', got 'fedotp'",
        ),
        (
            "from fedotp.methods import METHODS, FedOTP\nclass Mine(FedOTP):\n    ...\nMETHODS['fedotp'] = Mine",
            "line 4: fedotp already has a method fedotp; rename Mine",
        ),
    ],
)
def test_a_file_with_a_mistake_is_one_line(text: str, what: str, tmp_path: Path, fedotp: Fedotp) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    (tmp_path / "run").mkdir()
    done = fedotp("runs", "list", tmp_path, "--import", file)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert line.startswith(f"error: cannot import {file}: {what}")


def test_a_module_is_named_as_python_finds_it(tmp_path: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch) -> None:
    write_method(tmp_path, "moored_module").rename(tmp_path / "strangers_methods.py")
    monkeypatch.syspath_prepend(tmp_path)
    listed = fedotp("runs", "list", tmp_path, "--import", "strangers_methods")
    assert listed.status == 0, listed.err
    origin = origin_of(METHODS["moored_module"])
    assert origin["module"] == "strangers_methods"
    assert origin["file"] == str(tmp_path / "strangers_methods.py")


# Packages that are installed -------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_method(tmp_path, "moored_entry").rename(tmp_path / "a_package.py")
    install(tmp_path, "moored_entry", "a-package", "a_package:Moored_Entry")
    install(tmp_path, "moored_broken", "a-broken-package", "no_such_module:It")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_package_brings_a_method(package: Path, place: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a_package" not in sys.modules
    assert {"moored_entry", "moored_broken"} <= set(method_names())
    assert "a_package" not in sys.modules  # to list it is not to import it
    done = fedotp("compare", "tiny.toml", "--methods", "moored_entry", "--seeds", 0, "--out", "compared", "-q")
    assert done.status == 0, done.err
    (config,) = place.glob("compared/*/config.toml")
    origin = RunDirectory.open(config.parent).manifest["method"]["origin"]
    assert origin["package"] == "a-package 1.5"
    assert origin["entry_point"] == "a_package:Moored_Entry"
    assert origin["sha256"] == hashlib.sha256((package / "a_package.py").read_bytes()).hexdigest()
    forget()
    monkeypatch.delitem(sys.modules, "a_package")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(package)])
    gone = fedotp("evaluate", config.parent)
    assert gone.err.endswith("unknown method moored_entry; install a-package 1.5, which defines it\n")


def test_a_broken_package_is_one_line(package: Path, place: Path, fedotp: Fedotp) -> None:
    done = fedotp("run", "tiny.toml", "--set", "method.name=moored_broken")
    assert done.status == 2
    assert "cannot import the method moored_broken of a-broken-package 1.5: ModuleNotFoundError" in done.err
    install(package, "moored_entry", "another-package", "a_package:Moored_Entry")
    done = fedotp("run", "tiny.toml", "--set", "method.name=moored_entry")
    assert done.status == 2
    assert re.search(r"provide the method moored_entry: an?\S+ 1.5 and an?\S+ 1.5; uninstall all but one", done.err)


def test_packages_do_not_replace_what_fedotp_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = find_method("coop")
    install(tmp_path, "coop", "a-package", "no_such_module:It")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_method("coop") is before


# Real processes --------------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_side_by_side_in_processes_and_resumed_in_another(
    place: Path, method_file: Path, made: Path, trained: Path
) -> None:
    """Nothing of this process is there to help: only what the command line says."""

    def fedotp(*words: object, status: int = 0) -> str:
        return python("-m", "fedotp", *words, cwd=place, status=status, OMP_NUM_THREADS="1").stderr

    option = ("--import", os.path.relpath(method_file, place))
    fedotp("compare", "tiny.toml", "--methods", f"{NAME},coop", "--seeds", 0, "--jobs", 2, "--out", "both", *option)
    run = next(path.parent for path in place.glob(f"both/{NAME}*/config.toml"))
    assert RunDirectory.open(run).manifest["method"]["origin"]["file"] == str(method_file)
    assert json.loads((run / "summary.json").read_text())["final"] == RunDirectory.open(trained).summary["final"]
    for file in ("summary.json", "predictions.npz"):  # as if it had been killed after the last checkpoint
        (run / file).unlink()
    assert fedotp("run", "--resume", run, "-q", status=2).count("\n") == 1
    fedotp("run", "--resume", run, "-q", *option)
    assert RunDirectory.open(run).summary["final"] == RunDirectory.open(trained).summary["final"]
    os.environ[_imports.VARIABLE] = str(method_file)
    image = made / "images" / "day" / "blue" / "0.png"
    client = RunDirectory.open(run).manifest["clients"][0]
    one, other = (load(folder, client).predict(image).probabilities for folder in (run, trained))
    np.testing.assert_array_equal(one, other)
