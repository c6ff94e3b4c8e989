"""A report of a run with forged files."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedotp.errors import FedotpError
from fedotp.report.page._gather import gather
from fedotp.report.page._panels import gather_privacy
from fedotp.runs.directory._checksum import with_checksum
from invented_run import invent_run
from report.findings import a_probe, an_audit


def test_a_pipe_in_place_of_a_result_is_refused(tmp_path: Path) -> None:
    run = invent_run(tmp_path / "run")
    (tmp_path / "run" / "joined" / "late").mkdir(parents=True)
    os.mkfifo(tmp_path / "run" / "joined" / "late" / "result.json")
    with pytest.raises(FedotpError, match=r"cannot read .*result.json: .*not a regular file"):
        gather(run)


def test_a_share_beyond_all_numbers_is_damage(tmp_path: Path) -> None:
    run = invent_run(tmp_path / "run", complete=False)
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for line in lines:
        line["client_accuracy"] = [1.7e308] * 3
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(FedotpError, match="is corrupt: OverflowError"), run.reading():
        gather(run)


def test_predictions_that_unfold_without_end_are_not_read(tmp_path: Path) -> None:
    """Six million numbers in a few kilobytes, and a directory that says they are many more."""
    run = invent_run(tmp_path / "run")
    path = tmp_path / "run" / "predictions.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("client", "row", "label", "predicted", "loss"):
            archive.writestr(f"{name}.npy", _zeros(1 << 20))
    content = path.read_bytes()
    at = content.index(b"PK\x01\x02")
    path.write_bytes(content[: at + 24] + (2**31).to_bytes(4, "little") + content[at + 28 :])
    assert gather(run)["missing"] == [f"cannot read {path}: its decompressed size exceeds the limit of 1 GiB"]


@pytest.mark.parametrize("damage", [b"{'descr': ((((", b"{'descr': '|O', ", b"\xff" * 14])
def test_predictions_that_numpy_cannot_read_are_missing(damage: bytes, tmp_path: Path) -> None:
    run = invent_run(tmp_path / "run")
    path = tmp_path / "run" / "predictions.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("client.npy", b"\x93NUMPY\x01\x00\x10\x00" + damage.ljust(16))
    (missing,) = gather(run)["missing"]
    assert missing.startswith(f"cannot read {path}: ")
    assert "\n" not in missing


def _zeros(n: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(n, np.int8))
    return file.getvalue()


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"upper": 1, "bound": {}}', '{"attacks": 3}', '{"upper": 1, "sha256": ""}']
)
@pytest.mark.parametrize("name", ["audit", "probe"])
def test_a_forged_finding_is_left_out(name: str, content: str, tmp_path: Path) -> None:
    run = invent_run(tmp_path / "run")
    is_sealed = content.startswith("{") and "sha256" not in content
    (run.path / f"{name}.json").write_text(with_checksum(json.loads(content)) if is_sealed else content)
    found = gather_privacy(run)
    assert found is not None
    assert found[name] is None
    assert str(run.path) in found["problem"]


def test_what_was_found_out_is_shown_as_it_was(tmp_path: Path) -> None:
    run = invent_run(tmp_path / "run")
    assert gather_privacy(run) is None
    run.save_finding("audit", an_audit(upper=None, lower=1.25))
    run.save_finding("probe", a_probe(fair=False))
    found = gather_privacy(run)
    assert found is not None
    assert (found["audit"]["epsilon"], found["audit"]["upper"]) == (1.25, None)
    assert [attack["auc"][0] for attack in found["probe"]["attacks"]] == [0.612, 0.538, 0.6]
    assert not found["probe"]["fair"]
