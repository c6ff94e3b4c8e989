"""What the tab key offers, asked as a shell asks: by the environment, in a process of its own or in this one."""

from pathlib import Path

import pytest

from fedotp.cli import _complete
from fedotp.config import presets
from fedotp.data import DATASETS
from fedotp.methods import METHODS
from own_process import python

PROGRAM = """
import os, sys
from fedotp.cli import main
for line in sys.argv[1:]:
    sys.argv, os.environ["_TYPER_COMPLETE_ARGS"] = ["fedotp"], line
    try:
        main()
    except SystemExit:
        print("end of", line)
print(*{"torch"} & sys.modules.keys(), file=sys.stderr)
"""
OFFERED = {
    "fedotp run demo-n": ["demo-novel"],
    "fedotp run --set method.mas": ["method.mass="],
    "fedotp compare --methods fedotp,promptfl-fedp": ["fedotp,promptfl-fedprox", "fedotp,promptfl-fedper"],
    "fedotp data info oxford_": ["oxford_pets"],
    "fedotp runs show ": ["runs/first"],
    "fedotp paper run tableA": ["tableA2", "tableA3", "tableA4", "tableA5"],
}


def test_a_shell_is_offered_words_without_torch(tmp_path: Path) -> None:
    """As fish asks, in a new process."""
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.toml").touch()
    asked = {"_FEDOTP_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = python("-c", PROGRAM, *OFFERED, cwd=tmp_path, **asked)
    assert done.stderr.split() == []  # nothing went wrong, and torch was not imported
    expected = [word for line, words in OFFERED.items() for word in (*words, f"end of {line}")]
    assert [word.partition("\t")[0] for word in done.stdout.splitlines()] == expected


def test_presets_methods_data_sets_and_values_are_all_offered() -> None:
    assert {word for word, _ in _complete.sources("")} >= presets().keys()
    ours = {name for name, method in METHODS.items() if method.__module__.startswith("fedotp.")}
    assert {word for word, _ in _complete.methods("")} == ours
    assert {word for word, _ in _complete.datasets("")} == DATASETS.keys()

    words = [word for word, _ in _complete.assignments("federation.drop_last=")]
    assert words == ["federation.drop_last=true", "federation.drop_last=false"]
    assert list(_complete.assignments("no.such.key=1")) == []


def test_files_and_folders_are_offered_where_they_may_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    (tmp_path / "[odd]" / "run").mkdir(parents=True)
    (tmp_path / "[odd]" / "run" / "config.toml").touch()
    assert ("mine.toml", "a configuration") in list(_complete.sources("m"))
    assert list(_complete.runs("[o")) == [("[odd]/", "a folder")]
    assert list(_complete.runs("[odd]/")) == [("[odd]/run", "a run")]
    assert ("[odd]/run", "a run") in list(_complete.sources_or_runs("[odd]/"))
