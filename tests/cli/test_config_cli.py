"""`fedotp config`."""

import tomllib
from pathlib import Path

from cli_made import Fedotp

from fedotp.config import Config
from fedotp.runs.directory import RunDirectory


def test_a_configuration_is_printed_with_what_keys_mean(fedotp: Fedotp) -> None:
    done = fedotp("config", "demo", "--set", "optimizer.lr=0.2")
    assert done.status == 0
    assert "\nlr = 0.2\n" in done.out
    assert 'name = "own"  # "sgd" for fedotp\n# eta, the learning rate, or where' in done.out
    assert '\nlr = "mini"  # 0.003 for pfedmoap\n' in fedotp("config", "demo", "--set", "method.name=pfedmoap").out
    assert Config.from_dict(tomllib.loads(done.out)) == Config.preset("demo").override(["optimizer.lr=0.2"])


def test_what_is_printed_is_a_file_to_begin_from(place: Path, fedotp: Fedotp) -> None:
    Path("mine.toml").write_text(fedotp("config", "tiny.toml").out)
    assert Config.read("mine.toml") == Config.read("tiny.toml")


def test_the_configuration_of_a_run(place: Path, fedotp: Fedotp) -> None:
    fedotp("run", "tiny.toml", "--out", "here", "--quiet")
    printed = tomllib.loads(fedotp("config", "here").out)
    assert Config.from_dict(printed) == RunDirectory.open("here").config


def test_a_folder_that_is_no_run_is_one_line(place: Path, fedotp: Fedotp) -> None:
    Path("folder").mkdir()
    done = fedotp("config", "folder")
    assert done.status == 2
    assert done.err.startswith("error: folder is not a run: it has no config.toml")
