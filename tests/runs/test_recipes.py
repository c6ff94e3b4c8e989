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
EARLIER = ROOT / "docs/results/field-earlier"
DEMO = {
    "zeroshot": "zero-shot CLIP",
    "promptfl": "PromptFL: one prompt for all",
    "coop": "CoOp: everyone alone",
    "fedotp": "FedOTP: a global and a local prompt",
    "ridge": "Ridge: one round of sums",
    "personal-ridge": "**Personal ridge: two rounds of sums**",
}


def test_the_page_of_claims_is_what_the_recorded_runs_give() -> None:
    from recipes.claims.claims import CLAIMS as ALL
    from recipes.claims.data import Results
    from recipes.claims.judge import Verdict, verdict
    from recipes.claims.page import all_lines, fill, tables

    page = (ROOT / "docs/claims.md").read_text()
    assert fill(page, tables(CLAIMS, EARLIER)) == page
    assert (CLAIMS / "tables.csv").read_text() == all_lines(CLAIMS, EARLIER)
    judged = {claim.name: claim.judged(Results(CLAIMS, EARLIER)) for claim in ALL if claim.is_tested}
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
    from recipes.field.tables import lines, made_of, markdown, read, rows

    text = (ROOT / "docs/results.md").read_text()
    assert markdown(FIELD) in text
    assert made_of(FIELD) in text
    with (FIELD / "fifty.csv").open(newline="") as file:
        kept = list(csv.DictReader(file))
    made = rows(read(FIELD / "fifty-clients.csv"))
    assert [row["method"] for row in kept] == [row["method"] for row in made]
    np.testing.assert_allclose([float(row["mean"]) for row in kept], [row["mean"] for row in made], atol=1e-9)
    done = fedotp.run(make_config(inputs, federation={"rounds": 1}), tmp_path / "fifty" / "fedotp,seed=0")
    found = {(line.method, line.prior): line.mean / 100 for line in lines(tmp_path / "fifty", "fifty")}
    assert found["fedotp", "off"] == pytest.approx(done.summary["final"]["accuracy"])
    assert found["fedotp", "on"] == pytest.approx(done.summary["with_prior"]["accuracy"])


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
        found = {
            (row["method"], row["prior"], int(row["split"])): np.array(row["clients"].split(), float)
            for row in csv.DictReader(file)
        }
    text = (ROOT / "README.md").read_text()
    ours = [found["personal-ridge", "on", split].mean() for split in range(6, 12)]
    for method, name in DEMO.items():
        plain, prior = (
            [found[method, each, split].mean() for split in range(6, 12) if (method, each, split) in found]
            for each in ("off", "on")
        )
        ahead = ""
        if method != "personal-ridge":
            low, high = scipy.stats.ttest_rel(ours, prior).confidence_interval(0.95)
            ahead = f"{np.mean(ours) - np.mean(prior):+.2f} ({low:+.2f} to {high:+.2f})"
        cells = [f"{np.mean(each):.1f} %" if each else "" for each in (plain, prior)]
        assert f"| {name} | {' | '.join(cells)} | {ahead} |" in text
