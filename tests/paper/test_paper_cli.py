"""`fedotp paper` through the command line: from missing inputs to the finished table."""

import csv
import json
import shutil
import statistics
from pathlib import Path

import pytest
from toy import Toy

from cli.cli_made import Done, command
from fedotp.paper import ENTRIES, numbers

ROWS = ["Zero-Shot CLIP", "CoOp", "FedOTP (Ours)"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    found = Toy(tmp_path_factory.mktemp("toy"))
    found.make("office_caltech10")
    return found


@pytest.fixture(scope="module")
def table(toy: Toy) -> tuple[Done, Path]:
    """Two seeds of three rows of Table A3."""
    out = toy.folder / "runs"
    return run(toy, out), out


def run(toy: Toy, out: Path, *words: str, only: str = "coop,fedotp,Zero-Shot CLIP", seeds: str = "0,1") -> Done:
    config = ["prompt.n_ctx=2", "federation.rounds=1", "compute.device=cpu", *toy.places]
    changes = [word for change in config for word in ("--set", change)]
    return command("paper", "run", "tableA3", "--seeds", seeds, "--only", only, "--out", out, *changes, *words)


def lines(out: Path) -> list[dict[str, str]]:
    """Of the file, which has the whole table whatever --only says, those of which there is a run."""
    with (out / "tableA3.csv").open() as file:
        found = list(csv.DictReader(file))
    assert len(found) == 25
    return [line for line in found if line["runs"] != "0"]


def final(out: Path, method: str, seed: int) -> dict[str, dict[str, float]]:
    summary = json.loads((out / "office" / f"{method},seed={seed}" / "summary.json").read_text())
    return {"Avg.": summary["final"], **{name.lower(): value for name, value in summary["domains"].items()}}


def test_the_table_has_the_papers_numbers_beside_ours(table: tuple[Done, Path]) -> None:
    done, out = table
    assert done.status == 0, done.err
    found = lines(out)
    assert [line["method"] for line in found] == 5 * ROWS
    assert [line["setting"] for line in found[::3]] == ["Amazon", "Caltech", "DSLR", "Webcam", "Avg."]
    paper = {(c.method, c.setting): n for c, n in numbers("tableA3").items()}
    methods = dict(zip(ROWS, ("zeroshot", "coop", "fedotp"), strict=True))
    for line in found:
        setting, row = line["setting"], line["method"]
        printed = paper[row, setting]
        assert (float(line["paper_mean"]), float(line["paper_std"])) == (printed.mean, printed.std)
        runs = [final(out, methods[row], seed).get(setting, final(out, methods[row], seed).get(setting.lower()))
                for seed in (0, 1)]  # fmt: skip
        ours = [numbers_of["accuracy"] for numbers_of in runs if numbers_of]
        assert float(line["here_mean"]) == pytest.approx(statistics.fmean(ours))
        assert float(line["here_std"]) == pytest.approx(statistics.fmean(r["accuracy_std"] for r in runs if r))
        assert float(line["here_minus_paper"]) == pytest.approx(statistics.fmean(ours) - printed.mean / 100)
        assert (line["label"], line["runs"], line["runs_asked"]) == ("result_office", "2", "2")
        if row != "FedOTP (Ours)":
            gap = printed.mean - paper["FedOTP (Ours)", setting].mean
            assert float(line["paper_minus_reference"]) == pytest.approx(gap)
            assert line["pairs"] == "2"
    assert {line["last_five_mean"] != "" for line in found if line["setting"] == "Avg."} == {True}


def test_what_is_printed_and_saved(table: tuple[Done, Path]) -> None:
    done, out = table
    page = (out / "tableA3.md").read_text()
    for text in (done.out, page):
        assert "Office-Caltech10, Webcam" in text
        assert "35.51 ± 9.19" in text
        assert "control: majority class" in text
        assert "zero-shot CLIP is at chance" in " ".join(text.split())
    average = 100 * final(out, "fedotp", 0)["Avg."]["accuracy"], 100 * final(out, "fedotp", 1)["Avg."]["accuracy"]
    grid = next(line for line in done.out.splitlines() if line.startswith("FedOTP (Ours)") and "43.94 / " in line)
    assert grid.endswith(f"33.67 / {statistics.fmean(average):.2f}")
    assert "- Changed settings, which override the above: backbone.name is " in page
    assert "; federation.rounds is 1 instead of 10.\n" in page
    assert "data.root is" not in page
    assert "- Office-Caltech10: 160 training and 40 test images, in the paper 2,025 and 508; split: drawn once" in page
    assert all(f"- {sentence}\n" in page for sentence in ENTRIES["tableA3"].differs)
    assert str(out / "tableA3.csv") in done.out


def test_the_same_command_again_runs_nothing_and_other_settings_are_refused(toy: Toy, table: tuple[Done, Path]) -> None:
    done, out = table
    before = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    again = run(toy, out)
    assert again.status == 0
    assert again.out == done.out
    assert "6 runs, 6 already complete" in again.err
    mixed = run(toy, out, "--set", "optimizer.lr=0.5")
    assert mixed.status == 2
    assert "optimizer.lr is 0.001 there, 0.5 here" in mixed.err
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}


def test_what_is_half_finished_is_shown(table: tuple[Done, Path], tmp_path: Path) -> None:
    """Whatever splits and seeds are there; what is missing is marked."""
    out = tmp_path / "half"
    shutil.copytree(table[1], out)
    shutil.rmtree(out / "office" / "coop,seed=0")
    shutil.rmtree(out / "office" / "coop,seed=1")
    (out / "office" / "fedotp,seed=1" / "summary.json").unlink()
    done = command("paper", "show", "tableA3", "--out", out)
    assert done.status == 0, done.err
    with (out / "tableA3.csv").open() as file:
        found = {(line["method"], line["setting"]): line for line in csv.DictReader(file)}
    assert len(found) == 25
    average = {row: found[row, "Avg."] for row in ENTRIES["tableA3"].methods}
    assert [line["runs"] for line in average.values()] == ["2", "0", "0", "0", "1"]
    assert [line["runs_asked"] for line in average.values()] == 5 * ["2"]
    assert [bool(line["here_mean"]) for line in average.values()] == [True, False, False, False, True]
    assert [line["paper_mean"] for line in average.values()] == ["8.46", "28.67", "13.16", "13.84", "33.67"]
    assert "0 of 2" in done.out
    assert "1 of 2" in done.out
    assert "federation.rounds is 1 instead of 10" in " ".join(done.out.split())


def test_splits_and_shuffled_labels(toy: Toy, tmp_path: Path) -> None:
    """The entry's own split is not named, the other is; a control of each stands below the methods."""
    done = run(toy, tmp_path, "--splits", "0,3", "--controls", only="fedotp", seeds="5")
    assert done.status == 0, done.err
    names = {path.name for path in (tmp_path / "office").iterdir()}
    stems = ("fedotp", "fedotp,labels=shuffled")
    assert names == {f"{stem}{split},seed=5" for stem in stems for split in ("", ",split=3")}
    page = (tmp_path / "tableA3.md").read_text()
    assert "| control: FedOTP (Ours), shuffled labels | - |" in page
    assert command("paper", "show", "tableA3", "--only", "fedotp", "--out", tmp_path).out == done.out
    assert (tmp_path / "tableA3.md").read_text() == page
    assert {(line["runs"], line["runs_asked"]) for line in lines(tmp_path)} == {("2", "2")}


def test_missing_inputs_are_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    out, root = tmp_path / "runs", tmp_path / "data"
    done = command("paper", "run", "tableA2", "--set", f"data.root={root}", "--out", out)
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "missing inputs: 3, listed above; nothing was started" in done.err
    assert not out.exists()
    assert "missing  the weights of ViT-B/16" in done.out
    assert "from   https://huggingface.co/timm/vit_base_patch16_clip_224.openai/resolve/977e3dd0ec55" in done.out
    assert f"into   {tmp_path}/hub/models--timm--vit_base_patch16_clip_224.openai" in done.out
    assert "fetch  fedotp weights fetch ViT-B/16" in done.out
    assert "SHA-256 is 4b8699299b1e8997753c64b052ba32031449d5d853f55a039148560ee02b820f" in done.out
    assert f"put it at {root}/office_caltech_10" in done.out
    assert f"into   {root}/DomainNet/quickdraw" in done.out
    assert f"fetch  fedotp data download domainnet --root {root}" in done.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["run", "table9"], "unknown entry 'table9'; must be one of table1, table2"),
        (["run", "table1", "--only", "CIFAR-10"], "--only CIFAR-10: must be data sets or methods of Table 1: Food"),
        (["run", "table1", "--seeds", "x"], "--seeds x: must be whole numbers"),
    ],
)
def test_bad_input_is_one_line(words: list[str], why: str) -> None:
    done = command("paper", *words)
    assert done.status == 2
    assert why in done.err
    assert done.err.count("\n") == 1


def test_figures_are_drawn(toy: Toy, tmp_path: Path) -> None:
    words = [word for change in toy.places for word in ("--set", change)]
    done = command("paper", "run", "figureA2", "--out", tmp_path, *words)
    assert done.status == 0, done.err
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == [f"figureA2-{s}.png" for s in ("dirichlet", "domain-dirichlet", "domain", "pathological")]
    assert "these are all four" in " ".join(done.out.split())
