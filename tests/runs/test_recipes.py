"""The studies of `recipes`: each at toy size, and their pages are what the recorded numbers give."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import scipy
from toy_run import make_config

import fedotp
from fedotp.config import difference

ROOT = Path(__file__).parents[2]
CLAIMS, FIELD = ROOT / "docs/results/claims", ROOT / "docs/results/field"
DEMO = {
    "zeroshot": "zero-shot CLIP",
    "promptfl": "PromptFL: one prompt for all",
    "coop": "CoOp: everyone alone",
    "fedotp": "**FedOTP: a global and a local prompt**",
}


def test_the_page_of_claims_is_what_the_recorded_runs_give() -> None:
    from recipes.claims.claims import CLAIMS as ALL
    from recipes.claims.data import Results
    from recipes.claims.judge import Verdict, verdict
    from recipes.claims.page import all_lines, fill, tables

    page = (ROOT / "docs/claims.md").read_text()
    assert fill(page, tables(CLAIMS, FIELD)) == page
    assert (CLAIMS / "tables.csv").read_text() == all_lines(CLAIMS, FIELD)
    judged = {claim.name: claim.judged(Results(CLAIMS, FIELD)) for claim in ALL if claim.is_tested}
    found = {name: verdict(judged[name]) for name in ("transport", "unbalanced", "mass")}
    assert found == {"transport": Verdict.NOT, "unbalanced": Verdict.HOLDS, "mass": Verdict.NOT}
    assert not any(each.recorded for name in found for each in judged[name])  # published results decide nothing


def test_the_page_of_the_bridge_is_what_the_numbers_give() -> None:
    from recipes.bridge.settings import SETTINGS, trials
    from recipes.bridge.tables import PAGE, TEMPLATE, filled, read

    assert PAGE.read_text() == filled(TEMPLATE.read_text(), read())
    named = set(re.findall(r"\{\{(?:mean |last five |reported )?([\w/]+)\}\}", TEMPLATE.read_text()))
    assert named <= {f"{setting}/{change}" for setting, it in SETTINGS.items() for change in it.changes}
    made = trials("some")
    configs = {trial.labels["change"]: trial.config for trial in made}
    assert len(made) == len({trial.name for trial in made})
    for change, what in SETTINGS["some"].changes.items():
        if change != what.against and what.against in configs:
            assert difference(configs[change], configs[what.against])


def test_the_study_of_the_bridge_runs_and_resumes(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recipes.bridge.settings import OURS, SETTINGS, Change, Setting
    from recipes.bridge.study import main
    from recipes.bridge.tables import read

    data = (f"data.dataset={inputs / 'data'}", f"data.store={inputs / 'store'}")
    rest = (f"backbone.name={inputs / 'tiny.safetensors'}", "partition.n_clients=2", "prompt.n_ctx=2")
    few = Setting("demo", (*data, *rest), {OURS: Change(()), "all": Change(("bridge=authors",))}, splits=(0,))
    monkeypatch.setitem(SETTINGS, "few", few)
    words = ["study", str(tmp_path / "runs"), str(tmp_path / "out.csv"), "--settings", "few", "--toy"]
    monkeypatch.setattr("sys.argv", [*words, "--device", "cpu"])
    main()
    found = read(tmp_path / "out.csv").accuracy
    assert {name: list(series) for name, series in found.items()} == {"few/ours": [(0, 0)], "few/all": [(0, 0)]}
    monkeypatch.setattr("fedotp.runs.one._loop.Loop.go", lambda *_: pytest.fail("complete runs are kept"))
    main()
    assert read(tmp_path / "out.csv").accuracy == found


def test_the_tables_of_results_are_those_of_the_recorded_numbers(inputs: Path, tmp_path: Path) -> None:
    from recipes.field.tables import clients, markdown, recomputed

    assert markdown(FIELD) in (ROOT / "docs/results.md").read_text()
    done = fedotp.run(make_config(inputs, federation={"rounds": 1}), tmp_path / "fifty" / "fedotp,seed=0")
    own = next(row for row in clients(tmp_path / "fifty") if row["view"] == "own")
    final = done.summary["final"]
    assert recomputed(own["clients"]) == pytest.approx(
        {"accuracy": final["accuracy"], "worst decile": final["accuracy_worst_decile"]}
    )


def test_the_result_of_the_study_of_advice_is_what_its_numbers_give() -> None:
    with (ROOT / "docs/results/advise.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("advised", "advised_low", "advised_high", "true", "true_low", "true_high", "points_below_best")
    answer, low, high, true, true_low, true_high, below = (np.array([float(row[key]) for row in rows]) for key in keys)
    is_right = np.array([row["sign_right"] == "True" for row in rows])
    np.testing.assert_array_equal(is_right, answer * true > 0)
    is_sure, is_true = (low > 0) | (high < 0), (true_low > 0) | (true_high < 0)
    assert not (is_sure | is_true)[~is_right].any()
    text = (ROOT / "recipes/advise/README.md").read_text()
    for words in (
        f"right in {is_right.sum()} of {len(rows)} settings, and in {sum(int(row['seeds_right']) for row in rows)} of",
        f"All {is_sure.sum()} significant answers",
        f"gains in {(true > 0).sum()} of the {len(rows)} settings",
        f"{below.mean():.2f} points below the best on average, {below.max():.2f} at most",
        f"{answer.mean():.2f} points advised against {true.mean():.2f} true on average",
        f"{((low <= true) & (true <= high)).sum()} of {len(rows)} intervals hold the truth",
    ):
        assert words in text


def test_the_table_of_the_readme_is_what_the_clients_of_the_demo_give() -> None:
    with (ROOT / "docs/results/demo.csv").open(newline="") as file:
        found = {(row["method"], int(row["split"])): row["clients"] for row in csv.DictReader(file)}
    shares = {
        key: np.sort([int(r) / int(n) for r, n in (cell.split("/") for cell in text.split())])
        for key, text in found.items()
    }
    text = (ROOT / "README.md").read_text()
    ours = [shares["fedotp", split].mean() for split in range(6, 12)]
    for method, name in DEMO.items():
        own = [shares[method, split] for split in range(6, 12)]
        accuracy, worst = (100 * np.mean([each[:k].mean() for each in own]) for k in (50, 5))
        ahead = ""
        if method != "fedotp":
            low, high = scipy.stats.ttest_rel(ours, [each.mean() for each in own]).confidence_interval(0.95)
            ahead = f"{100 * (np.mean(ours) - accuracy / 100):+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
        assert f"| {name} | {accuracy:.1f} % | {worst:.1f} % | {ahead} |" in text
