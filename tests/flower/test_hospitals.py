"""docs/hospitals.md works as printed: real processes, DICOM files, TLS."""

import csv
import re
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest
from real_processes import processes

from fedotp.flower.link._superlink import free_port
from fedotp.runs.directory import RunDirectory

PAGE = Path(__file__).parents[2] / "docs" / "hospitals.md"


@pytest.mark.processes
def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    """In order; only ports differ. Server, sites and the page of `serve` run in the background."""
    pytest.importorskip("pydicom")
    (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)).splitlines()
    port, made = free_port(), tmp_path / "state/north/classifier/bundle.json"
    ports = {"server": ["--port", port], "client": ["--server", f"localhost:{port}"], "serve": ["--port", 0]}
    with processes(tmp_path) as started:
        for number, line in enumerate(lines):
            program, *words = line.split()
            if program == "cp":
                subprocess.run(line, shell=True, cwd=tmp_path, check=True)
                continue
            name = words[0] if words[0] in ("server", "serve") else f"{number}"
            if words[0] == "runs":
                assert started.wait("server") == 0, started.all_logs()
                started.until(made.exists)
            code = {"code": script} if program == "python" else {}
            started.start(name, *words, *ports.get(words[0], []), **code)
            assert words[0] in ports or started.wait(name) == 0, started.all_logs()
        started.until(lambda: "http://" in started.log("serve"))
        with urlopen(re.findall(r"http://[\d.:]+", started.log("serve"))[0], timeout=30) as page:
            assert b"<html" in page.read()
        predicted = csv.DictReader(started.log(f"{len(lines) - 2}").splitlines())
    checked = csv.DictReader((tmp_path / "north/checked.csv").read_text().splitlines())
    labels = {f"north/{row['path']}": row["label"] for row in checked}
    right = [labels[row["image"]] == row["predicted"] for row in predicted]
    assert (len(right), sum(right) > 0.85 * 40) == (40, True)
    assert RunDirectory.open(tmp_path / "runs/nodules").summary["final"]["accuracy"] > 0.9
