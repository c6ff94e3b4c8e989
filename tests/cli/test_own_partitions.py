"""A stranger's partition scheme and data set, in a file or in a package of its own, work in every command."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from cli_made import Fedotp

from data.data_made import uniform_dataset
from fedotp.data.partition import PARTITIONS, Client, PartitionSettings, make_partition
from fedotp.errors import FedotpError
from stranger import forget, install

pytestmark = pytest.mark.usefixtures("as_new")

SCHEME = '''
"""Images dealt out by turns."""
import numpy as np
from fedotp.data.partition import PARTITIONS, Client


def by_turns(dataset, settings):
    """Every n-th image."""
    n = settings.n_clients or 3
    rows = [np.arange(len(dataset.train)), np.arange(len(dataset.test))]
    return [Client(f"ward-{c}", None, *(each[c::n] for each in rows)) for c in range(n)]


PARTITIONS["by-turns"] = by_turns
'''
DATASET = """
from fedotp.data import DATASETS, DatasetInfo
from fedotp.data._folder import read_folder

SCANS = DatasetInfo("own-scans", "Scans", "scans", ("MARKER",), lambda folder: read_folder(folder / "images"),
                    3, 36, 12, 2, "a scan of {}.")
"""


def test_a_scheme_of_a_file_runs_and_its_run_says_where_it_came_from(place: Path, fedotp: Fedotp) -> None:
    file = place / "turns.py"
    file.write_text(SCHEME)
    words = ("run", "tiny.toml", "--set", "partition.scheme=by-turns", "--out", "run", "-q")
    done = fedotp(*words)
    assert done.status == 2
    assert "unknown scheme 'by-turns'" in done.err
    assert "or one of your own with --import FILE.py" in done.err
    done = fedotp(*words, "--import", file)
    assert done.status == 0, done.err
    manifest = json.loads((place / "run" / "manifest.json").read_text())
    assert manifest["clients"] == ["ward-0", "ward-1", "ward-2"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert manifest["origins"]["partition"] == {"file": str(file), "sha256": digest}

    forget()
    missing = f"unknown partition scheme by-turns; give --import {file}, which defines it"
    done = fedotp("evaluate", "run")
    assert done.status == 2
    assert missing in done.err
    for words, part in ((("runs", "list", "."), "run"), (("runs", "show", "run"), "ward-2")):  # its files suffice
        shown = fedotp(*words)
        assert shown.status == 0, shown.err
        assert part in shown.out
    done = fedotp("evaluate", "run", "--import", file)
    assert done.status == 0, done.err


@pytest.mark.parametrize("kind", ["partition", "dataset"])
def test_packages_bring_them_by_entry_points(
    kind: str, place: Path, made: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "site").mkdir()
    monkeypatch.syspath_prepend(place / "site")
    if kind == "partition":
        (place / "site" / "turns_of_others.py").write_text(SCHEME.replace('PARTITIONS["by-turns"] = by_turns', ""))
        value, group = "turns_of_others:by_turns", "fedotp.partitions"
        install(place / "site", "by-turns", "their-turns", value, group)
        words = ("--set", "partition.scheme=by-turns")
    else:
        (place / "site" / "scans_of_others.py").write_text(DATASET)
        value, group = "scans_of_others:SCANS", "fedotp.datasets"
        install(place / "site", "own-scans", "their-scans", value, group)
        (place / "data" / "scans").mkdir(parents=True)
        (place / "data" / "scans" / "MARKER").touch()
        (place / "data" / "scans" / "images").symlink_to(made / "images")
        words = ("--set", "data.dataset=own-scans", "--set", "data.root=data")
        listed = fedotp("data", "list", "--root", "data")
        assert "own-scans" in listed.out, listed.err
        assert fedotp("data", "info", "own-scans", "--root", "data").out.startswith("Scans: 3 classes in 2 domains")
    done = fedotp("run", "tiny.toml", *words, "--out", "run", "-q")
    assert done.status == 0, done.err
    origin = json.loads((place / "run" / "manifest.json").read_text())["origins"][kind]
    assert origin["entry_point"] == value
    assert origin["package"].endswith(" 1.5")


def _rows(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([], "expected at least 1 clients, got 0"),
        (["me"], "client 0 must be a Client with a unique name, got 'me'"),
        ([Client("a", None, _rows(0), _rows(0)), Client("a", None, _rows(1), _rows(1))], "client 1 must be a Client"),
        ([Client("a", None, _rows(0), _rows())], "a, test: images must be a non-empty int64 array"),
        ([Client("a", None, _rows(1, 0), _rows(0))], "a, train: positions must be ascending, from 0 to 9"),
        (
            [Client("a", None, _rows(0, 1), _rows(0)), Client("b", None, _rows(1), _rows(1))],
            "b, train: image 1 already",
        ),
    ],
)
def test_what_a_scheme_must_return(clients: list[object], message: str) -> None:
    PARTITIONS["odd"] = lambda dataset, settings: clients  # type: ignore[assignment, return-value]
    with pytest.raises(FedotpError, match=f"^partition scheme odd: {message}"):
        make_partition(uniform_dataset(2, 5, 5), PartitionSettings("odd"))


def test_what_is_no_scheme_is_refused() -> None:
    with pytest.raises(FedotpError, match=r"PARTITIONS\['x'\] must be a function of a data set and settings, got 3"):
        PARTITIONS["x"] = 3  # type: ignore[assignment]
    with pytest.raises(FedotpError, match="fedotp already has a partition scheme iid"):
        PARTITIONS["iid"] = lambda dataset, settings: ()
