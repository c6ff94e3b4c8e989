"""The page about runs: what it is made of, and that hostile runs stay text."""

import base64
import hashlib
import json
import re
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedotp.errors import FedotpError
from fedotp.report.page._page import make_page
from fedotp.runs.directory import RunDirectory
from invented_run import invent_run

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "a & b\u2028c\u2029<!--",
    "\udcff {{data}}",
]


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def only(page: str) -> Any:
    (one,) = data_of(page)["runs"]
    return one


def test_the_numbers_are_those_of_the_run(tmp_path: Path) -> None:
    made = invent_run(tmp_path / "run", domains=("day", "night", "day"))
    shown = only(make_page([made]))
    evaluations = list(made.metrics("evaluation"))
    assert shown["curve"]["round"] == [0, 1, 2, 3, 4]
    for key, record in (("mean", "accuracy"), ("std", "accuracy_std"), ("min", "accuracy_min")):
        np.testing.assert_allclose(shown["curve"][key], [1e6 * e[record] for e in evaluations], atol=0.51)
    matrix = [e["client_accuracy"] for e in evaluations]
    np.testing.assert_allclose(np.transpose(shown["curve"]["clients"]), np.multiply(matrix, 1e6), atol=0.51)
    assert shown["clients"]["name"] == ["north", "south", "east"]
    assert shown["clients"]["train"] == [20, 20, 20]
    np.testing.assert_allclose(shown["clients"]["accuracy"], np.multiply(matrix[-1], 1e6), atol=0.51)
    assert shown["domains"] == made.summary["domains"]
    assert shown["training"]["bytes_up"] == [3 * 32_768] * 4
    assert shown["seconds"] == {"train": 4.0, "evaluate": 2.5}
    assert shown["state"] == "complete"
    assert shown["config"] == json.loads(json.dumps(made.config.to_dict()))
    assert {**shown["manifest"], "config": shown["config"]} == made.manifest


def test_views_are_rows_with_their_curves(tmp_path: Path) -> None:
    made = invent_run(tmp_path / "run", views=True)
    rows = {(row["view"], row["model"]): row for row in only(make_page([made]))["views"]}
    assert list(rows)[:3] == [("personal", "personal"), ("base", "personal"), ("novel", "personal")]
    for key in (("base", "personal"), ("global", "global")):
        series = [r["accuracy"] for r in made.metrics("view") if (r["view"], r["model"]) == key]
        np.testing.assert_allclose(rows[key]["accuracy"], np.multiply(series, 1e6), atol=0.51)
        assert rows[key]["round"] == [0, 1, 2, 3, 4]
        assert rows[key]["last"] == pytest.approx(1e6 * series[-1], abs=0.51)
        assert rows[key]["last_five"] == pytest.approx(1e6 * statistics.fmean(series), abs=0.51)
        assert rows[key]["best"] == max(rows[key]["accuracy"]) == rows[key]["accuracy"][rows[key]["best_round"]]
    assert (rows["novel", "personal"]["clients"], rows["novel", "global"]["clients"]) == (3, 1)
    hm = statistics.harmonic_mean([rows["base", "personal"]["last"], rows["novel", "personal"]["last"]])
    assert rows["HM", "personal"]["last"] == pytest.approx(hm, abs=2)
    assert ("CM", "global") in rows
    assert only(make_page([invent_run(tmp_path / "plain")]))["views"] == []


def test_the_clients_table_has_the_metrics_there_are(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = invent_run(tmp_path / "before")
    worst_recall = request.getfixturevalue("worst_recall")
    page = make_page([before, made := invent_run(tmp_path / "run")])
    assert [metric["heading"] for metric in data_of(page)["metrics"]] == [
        "accuracy %", "balanced accuracy %", "macro-F1 %", "loss", "worst recall %",
    ]  # fmt: skip
    old, new = data_of(page)["runs"]
    values = list(made.metrics("evaluation"))[-1][f"client_{worst_recall.key}"]
    np.testing.assert_allclose(new["clients"][worst_recall.key], np.multiply(values, 1e6), atol=0.51)
    assert old["clients"][worst_recall.key] == [None, None, None]


def test_confusions_are_counted_for_each_client(tmp_path: Path) -> None:
    from sklearn.metrics import confusion_matrix

    made = invent_run(tmp_path / "run")
    predictions = made.predictions()
    for client, triples in enumerate(only(make_page([made]))["confusion"]):
        found = np.zeros((4, 4), int)
        for label, predicted, n in np.reshape(triples, (-1, 3)):
            found[label, predicted] = n
        own = predictions.client == client
        right = confusion_matrix(predictions.label[own], predictions.predicted[own], labels=range(4))
        np.testing.assert_array_equal(found, right)


def test_seeds_are_one_row_and_other_settings_another(tmp_path: Path) -> None:
    runs = [invent_run(tmp_path / f"fedotp-{seed}", seed=seed) for seed in range(3)]
    runs.append(invent_run(tmp_path / "coop", method="coop"))
    shown = data_of(make_page(runs))
    rows = shown["comparison"]["rows"]
    assert [(row["label"], row["runs"]) for row in rows] == [("FedOTP", "3"), ("CoOp (local)", "1")]
    accuracy = [made.summary["final"]["accuracy"] for made in runs]
    assert rows[0]["cells"][0]["value"] == pytest.approx(statistics.fmean(accuracy[:3]))
    assert rows[0]["cells"][0]["std"] == pytest.approx(statistics.stdev(accuracy[:3]))
    assert rows[1]["cells"][0]["std"] is None
    titles = ["FedOTP, seed 0", "FedOTP, seed 1", "FedOTP, seed 2", "CoOp (local)"]
    assert [one["title"] for one in shown["runs"]] == titles
    assert len({one["colour"] for one in shown["runs"][:3]}) == 1
    different = {row["key"]: row["values"] for row in shown["differences"]}
    assert different["seed"] == [0, 1, 2, 0]
    assert different["method.name"] == ["fedotp"] * 3 + ["coop"]
    assert different["method.mass"] == [0.8, 0.8, 0.8, None]


def test_methods_are_compared_with_fedotp_or_another_that_is_named(tmp_path: Path) -> None:
    runs = [invent_run(tmp_path / f"{name}{k}", method=name, split=k) for name in ("coop", "fedotp") for k in range(2)]
    for against, other in ((None, "FedOTP"), ("CoOp (local)", "CoOp (local)")):
        found = data_of(make_page(runs, against=against))["comparison"]["differences"]
        assert found["titles"][1] == f"minus {other}"
        assert [line[0] for line in found["lines"]] == [{"FedOTP": "CoOp (local)"}.get(other, "FedOTP")]
    with pytest.raises(FedotpError, match=r"--against coop: must be a method as named in the table: CoOp \(local\)"):
        make_page(runs, against="coop")


def test_an_incomplete_run_shows_what_there_is(tmp_path: Path) -> None:
    whole, part = invent_run(tmp_path / "whole"), invent_run(tmp_path / "part", complete=False, seed=1)
    shown = only(make_page([part]))
    assert shown["state"] == "stopped"
    assert shown["rounds"] == {"done": 3, "planned": 4}
    assert shown["curve"]["round"] == [0, 1, 2, 3]
    assert shown["confusion"] == []
    rows = data_of(make_page([whole, part]))["comparison"]["rows"]
    assert [row["runs"] for row in rows] == ["1 of 2"]
    (tmp_path / "part" / "metrics.jsonl").unlink()
    assert only(make_page([part]))["totals"] == {}


@pytest.mark.parametrize("share", ["predictions", "scores", "nothing"])
def test_a_run_of_real_sites_shows_what_they_tell(tmp_path: Path, share: str) -> None:
    made = invent_run(tmp_path / "run", share=share)
    shown = only(make_page([made]))
    assert shown["deployed"]
    assert shown["missing"] == []  # what sites do not share is not damage
    assert shown["clients"]["train"] == [30, 30, 30]
    assert shown["clients"]["test"] == ([None] * 3 if share == "nothing" else [20, 20, 20])
    assert bool(shown["totals"]) == (share != "nothing")
    assert bool(shown["confusion"]) == (share == "predictions")


def test_a_simulation_and_real_sites_are_not_seeds_of_one_another(tmp_path: Path) -> None:
    runs = [invent_run(tmp_path / "here"), invent_run(tmp_path / "there", share="scores")]
    runs.append(invent_run(tmp_path / "silent", share="nothing", method="coop"))
    shown = data_of(make_page(runs))
    titles = ["FedOTP, simulated", "FedOTP, real sites", "CoOp (local)"]
    assert [one["title"] for one in shown["runs"]] == titles
    assert [(row["label"], row["runs"]) for row in shown["comparison"]["rows"]] == [(title, "1") for title in titles]
    assert shown["comparison"]["rows"][2]["cells"][0] is None


def test_an_early_stop_evaluates_its_last_round_twice(tmp_path: Path) -> None:
    made = invent_run(tmp_path / "run")
    made.append_metrics({**list(made.metrics("evaluation"))[-1], "accuracy": 0.125})
    made.save_summary(made.summary)
    curve = only(make_page([made]))["curve"]
    assert curve["round"] == [0, 1, 2, 3, 4]
    assert curve["mean"][-1] == 125_000


def test_damaged_files_are_named(tmp_path: Path) -> None:
    made = invent_run(tmp_path / "run")
    (made.path / "predictions.npz").write_bytes(b"nothing")
    assert "predictions.npz" in only(make_page([made]))["missing"][0]
    made.save_manifest({})
    with pytest.raises(FedotpError, match=r"manifest.json: missing key data.dataset"):
        make_page([RunDirectory(made.path)])


def test_numbers_that_json_does_not_have_are_null(tmp_path: Path) -> None:
    made = invent_run(tmp_path / "run")
    path = made.path / "metrics.jsonl"
    path.write_text(re.sub(r'"loss":[\d.]+', '"loss":NaN', path.read_text()))
    RunDirectory(made.path).save_summary(made.summary)
    shown = only(make_page([made], [{"maps": [], "limits": {"asked": float("inf")}}]))
    assert set(shown["training"]["loss"]) == {None}
    assert shown["analysis"]["limits"]["asked"] is None


class Tags(HTMLParser):
    """The tags of a page as a browser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_hostile_names_are_data(tmp_path: Path) -> None:
    calm = make_page([invent_run(tmp_path / "calm")])
    made = invent_run(
        tmp_path / "run", clients=HOSTILE[:3], classes=HOSTILE, domains=HOSTILE[:3], dataset="</title><script>alert(3)"
    )
    page = make_page([made], [f"cannot read {HOSTILE[0]}"])
    assert [tag for tag, _ in Tags(page).found] == [tag for tag, _ in Tags(calm).found]
    assert only(page)["clients"]["name"] == HOSTILE[:3]
    assert only(page)["data"]["classes"] == HOSTILE
    assert "onerror=alert(1)>" not in page
    assert "\u2028" not in page.split("<script>")[0]


def test_the_policy_lets_only_the_pages_own_scripts_run_and_nothing_connect(tmp_path: Path) -> None:
    page = make_page([invent_run(tmp_path / "run")])
    metas = [attributes for tag, attributes in Tags(page).found if tag == "meta"]
    (policy,) = [meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert not [tag for tag, attributes in Tags(page).found if "src" in attributes or tag == "link"]


def test_of_very_many_clients_some_have_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedotp.report.page._gather._MOST_POINTS", 20)
    made = invent_run(tmp_path / "run", clients=[f"c{i}" for i in range(9)])
    shown = only(make_page([made]))
    assert shown["curve"]["shown"] == [0, 3, 5, 8]
    assert len(shown["clients"]["accuracy"]) == 9


def test_clients_that_joined_later_are_there(tmp_path: Path) -> None:
    made = invent_run(tmp_path / "run")
    numbers = {"before": {"accuracy": 0.5}, "after": {"accuracy": 0.75}}
    result = {"client": "west", "train_images": 8, "test_images": 4, **numbers}
    (made.path / "joined" / "west").mkdir(parents=True)
    (made.path / "joined" / "west" / "result.json").write_text(json.dumps(result))
    joined = only(make_page([made]))["joined_later"]
    assert joined == [{"name": "west", "train": 8, "test": 4, "before": 500_000, "after": 750_000}]
