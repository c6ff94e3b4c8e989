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


def test_claims_are_judged_and_their_runs_differ(tmp_path: Path) -> None:
    from recipes.claims.judge import Comparison, Word, judge
    from recipes.claims.settings import CHOOSING, SETTINGS, asked
    from recipes.claims.study import Lines, best_rates

    drawn = np.random.default_rng(0)
    pairs = [(split, seed) for split in range(6) for seed in range(2)]
    words = {(0.01, 0.001): Word.AHEAD, (-0.01, 0.001): Word.BEHIND, (0, 0.002): Word.SMALL, (0, 0.05): Word.OPEN}
    for (mean, spread), word in words.items():
        theirs = {pair: float(drawn.normal(0.8, 0.05)) for pair in pairs}
        ours = {pair: value + float(drawn.normal(mean, spread)) for pair, value in theirs.items()}
        assert judge([Comparison("row", "column", ours, theirs)])[0].word is word
    every = [run for name in (*CHOOSING, *SETTINGS) for run in asked(name, {}, device="cpu", toy=True)]
    assert len({run.key for run in every}) == len({run.trial.name for run in every}) == len(every)
    lines = Lines(tmp_path / "runs.csv", ("setting", "value", "method", "split", "seed", "accuracy"))
    for rate, split, accuracy in (("0.1", 100, 0.7), ("0.1", 101, 0.8), ("0.03", 100, 0.9), ("0.03", 101, 0.5)):
        lines.add([("rates-dirichlet", rate, "fedotp", split, 0, accuracy)])
    rates = best_rates(lines.path)
    configs = [run.trial.config for run in asked("alpha", rates, device="cpu", toy=True) if run.key[2] == "fedotp"]
    assert {config.optimizer.lr for config in configs} == {0.1}
    assert not {100, 101} & {config.partition.seed for config in configs}  # chosen on other splits


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


def test_the_page_of_attacks_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a study in which two attacks cost accuracy, and only "median" helps."""
    from recipes.attacks.page import main
    from recipes.attacks.settings import AIMED, ATTACKS, METHODS, RULES, SHARES, SPLITS, Asked
    from recipes.attacks.study import NUMBERS

    rng = np.random.default_rng(0)
    cells = [("none", 0.0, rule) for rule in RULES]
    cells += [(attack, share, rule) for attack in ATTACKS for share in SHARES for rule in RULES]
    cells += [(attack, 0.0, "average") for attack in AIMED]
    keys = [(method, *cell, split) for method in METHODS for cell in cells for split in SPLITS]
    path, page = tmp_path / "attacks.csv", tmp_path / "attacks.md"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Asked.COLUMNS, *NUMBERS])
        for method, attack, share, rule, split in keys:
            lost = 0.0 if rule == "median" else {"sign-flip": 0.5, "backdoor": 0.1}.get(attack, 0.0) * share
            own = 0.9 - 0.01 * np.arange(4) + 0.001 * split - lost + 1e-4 * rng.normal(size=4)
            bad = [split % 4] if share else []
            shown = ["-" if number in bad else f"{value:.6f}" for number, value in enumerate(own)]
            success = f"{share + 0.01 * rng.normal():.6f}" if attack in AIMED else "nan"
            numbers = [f"{np.delete(own, bad).mean():.6f}", success, " ".join(map(str, bad)), " ".join(shown)]
            writer.writerow([method, attack, f"{share:g}", rule, split, *numbers])
    page.write_text((ROOT / "docs/attacks.md").read_text())
    monkeypatch.setattr("sys.argv", ["page", str(path), str(page)])
    main()
    lines = page.read_text().splitlines()
    (harmed,) = [line for line in lines if line.startswith("- **FedOTP without a rule**")]
    assert "8 of 20 attacks cost accuracy" in harmed
    assert "the worst, sign-flip from 40 %, costs 20.0 points" in harmed
    (helped,) = [line for line in lines if line.startswith("| `median`")]
    assert helped.split("|")[2].strip() == "8"


def test_the_tables_of_results_are_those_of_the_recorded_numbers(inputs: Path, tmp_path: Path) -> None:
    from recipes.field.tables import clients, markdown, recomputed

    assert markdown(FIELD) in (ROOT / "docs/results.md").read_text()
    done = fedotp.run(make_config(inputs, federation={"rounds": 1}), tmp_path / "fifty" / "fedotp,seed=0")
    own = next(row for row in clients(tmp_path / "fifty") if row["view"] == "own")
    final = done.summary["final"]
    assert recomputed(own["clients"]) == pytest.approx(
        {"accuracy": final["accuracy"], "worst decile": final["accuracy_worst_decile"]}
    )


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
