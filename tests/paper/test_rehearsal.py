"""`fedotp paper run` from nothing to the finished table, with small weights; `rehearsal.py` does it in full size."""

from pathlib import Path

import pytest
from rehearsal import ENTRIES, FILE, NAMES, SHORT, machine, small, write_data

from fedotp.clip import CONFIGS
from fedotp.clip._hub import PUBLISHED


@pytest.mark.processes
def test_from_nothing_to_the_table(tmp_path: Path) -> None:
    with machine(tmp_path, {name: small(CONFIGS[name]) for name in NAMES}) as (there, asked):
        root = there.folder / "data"
        words = ("paper", "run", "table1", *ENTRIES["table1"], *SHORT, "--seeds", "0", "--set", f"data.root={root}")
        nothing = there.fedotp(*words)
        assert nothing.returncode == 2, nothing.stderr
        assert "missing  the weights of RN50" in nothing.stdout
        assert f"into   {there.folder}/hf/hub/models--timm--resnet50_clip.openai" in nothing.stdout
        assert f"into   {root}/oxford_pets/annotations" in nothing.stdout
        assert not asked
        assert not (there.folder / "runs").exists()

        write_data(root)
        fetched = there.fedotp("weights", "fetch", "RN50")
        assert fetched.returncode == 0, fetched.stderr
        file = f"/{PUBLISHED['RN50'].repository}/resolve/{PUBLISHED['RN50'].revision}/{FILE}"
        assert asked[-2:] == [f"HEAD {file}", f"GET {file}"]

        done = there.fedotp(*words)
        assert done.returncode == 0, done.stderr
        assert [
            line for line in done.stdout.splitlines() if line.startswith("FedOTP (Ours)") and "98.82 ± 0.11" in line
        ]
        table = (there.folder / "runs" / "paper" / "table1.csv").read_text().splitlines()
        assert len(table) == 1 + 45
        ours = [row.split(",")[2] for row in table[1:] if row.split(",")[6]]  # where we have a number
        assert ours == 9 * ["OxfordPets"]
        assert "partition.shots is 2 instead of 4" in done.stdout
