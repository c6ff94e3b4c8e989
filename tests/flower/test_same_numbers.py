"""A federation of real sites does what the simulator does: the same prompts, the same numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near_sites import NearGrid, assert_same_server, cut_in, make_deployable, parts

import fedotp
from coloured_squares import draw_squares
from fedotp.config import Config
from fedotp.data import load_dataset
from fedotp.methods import METHODS
from fedotp.runs.directory import RunDirectory
from runs.toy_run import COLOURS

DOMAINS = ("day", "night")


CASES = [(method, "average", 0.0) for method in METHODS if method != "zeroshot"]
CASES += [("fedotp", step, 0.0) for step in ("momentum", "adam", "yogi")]
CASES += [("promptfolio", "average", 8.0), ("fedmgp:method.variant=code", "average", 0.0)]
CASES += [(f"{method}:prompt.space=features", "average", 0.0) for method in ("fedotp", "pfedmoap")]


@pytest.mark.parametrize(("method", "step", "kgcoop"), CASES)
def test_sites_end_with_the_simulators_prompts(
    method: str, step: str, kgcoop: float, inputs: Path, tmp_path: Path
) -> None:
    name, *options = method.split(":")
    config = make_deployable(inputs, method={"name": name}, server={"name": step, "lr": 0.1})
    config = config.override([f"prompt.kgcoop={kgcoop}", *options])
    simulated, deployed = both(config, tmp_path)
    assert_same_server(deployed, simulated, atol=1e-6)
    assert deployed.summary["communication"] == simulated.summary["communication"]
    assert deployed.summary["final"]["accuracy"] == pytest.approx(simulated.summary["final"]["accuracy"])
    assert deployed.summary["final"]["loss"] == pytest.approx(simulated.summary["final"]["loss"], abs=1e-5)


def both(config: Config, folder: Path) -> tuple[RunDirectory, RunDirectory]:
    """The simulated run, and the one with real sites."""
    grid = NearGrid(parts(folder, 3, share="predictions"))
    return fedotp.run(config, folder / "simulated"), grid.serve(config, folder / "deployed")


RULES: dict[str, dict[str, Any]] = {
    "bounded": {},
    "median": {},
    "trimmed": {"malicious": 1},
    "krum": {"malicious": 0},
    "multi-krum": {"malicious": 0, "kept": 2},
}


@pytest.mark.parametrize("rule", RULES)
def test_robust_rules_give_the_simulators_prompts(rule: str, inputs: Path, tmp_path: Path) -> None:
    server = {"rule": rule, "name": "momentum", "lr": 0.5, **RULES[rule]}
    config = make_deployable(inputs, server=server, federation={"rounds": 1})
    simulated, deployed = both(config, tmp_path)
    assert_same_server(deployed, simulated, atol=1e-6)
    averaged = [[record.get("averaged") for record in run.metrics("round")] for run in (deployed, simulated)]
    assert averaged[0] == averaged[1]
    assert (averaged[0][0] is not None) == ("krum" in rule)


def test_zero_shot_is_evaluated_without_a_round(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs, method={"name": "zeroshot"})
    simulated, deployed = both(config, tmp_path)
    assert deployed.summary["rounds"] == 0
    assert deployed.summary["final"]["accuracy"] == pytest.approx(simulated.summary["final"]["accuracy"])


def test_sites_that_nobody_named_are_numbered_by_their_parts(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs, federation={"participation": 0.5, "rounds": 3})
    simulated = fedotp.run(config, tmp_path / "simulated")
    nodes = parts(tmp_path, 3)
    backwards = NearGrid({node: nodes[node] for node in sorted(nodes, reverse=True)})
    deployed = backwards.serve(config, tmp_path / "deployed", known=False)
    assert_same_server(deployed, simulated, atol=1e-6)
    assert [r["sampled"] for r in deployed.metrics("round")] == [r["sampled"] for r in simulated.metrics("round")]


def test_sites_with_their_own_folders_do_what_clients_by_domain_do(inputs: Path, tmp_path: Path) -> None:
    """The simulator divides one folder by domain; each site has one domain's folder and knows of no other."""
    for split, n_images in (("train", 4), ("test", 2)):
        for domain in DOMAINS:
            draw_squares(tmp_path / "data" / domain / split, COLOURS, n_images)
    for split in ("train", "test"):
        (tmp_path / "data/night" / split / "green").rename(tmp_path / f"no green by night, {split}")
    data = {"dataset": str(tmp_path / "data"), "store": str(tmp_path / "store")}
    config = make_deployable(inputs, data=data).override(["partition.scheme=domain"])
    simulated = fedotp.run(config, tmp_path / "simulated")
    options = {"backbone": str(inputs / "tiny.safetensors"), "share": "predictions"}
    nodes = parts(tmp_path, 2, **options)
    for node, name in zip(nodes.values(), DOMAINS, strict=True):
        del node["part"]
        node |= {"data": str(tmp_path / "data" / name), "name": name}
    deployed = NearGrid(nodes).serve(config, tmp_path / "deployed", classes=tuple(COLOURS))
    assert_same_server(deployed, simulated, atol=1e-6)
    assert deployed.summary["final"]["accuracy"] == pytest.approx(simulated.summary["final"]["accuracy"])
    assert list((tmp_path / "site-0" / "tokens").iterdir())  # encoded once, at the site


@pytest.mark.parametrize("prior", [0.0, 1.0])
def test_a_sites_classifier_is_what_it_was_tested_with(inputs: Path, tmp_path: Path, prior: float) -> None:
    """Its class prior included, of whose counts nothing is in any message."""
    draw_squares(tmp_path / "data", COLOURS, 10)
    for path in (tmp_path / "data").glob("[rg]*/[1-7].png"):
        path.unlink()
    nodes = {100: {"data": str(tmp_path / "data"), "name": "only", "state": str(tmp_path / "only")}}
    nodes[100] |= {"backbone": str(inputs / "tiny.safetensors"), "share": "predictions"}
    grid = NearGrid(nodes)
    config = make_deployable(inputs, evaluation={"prior": prior})
    run = grid.serve(config, tmp_path / "run")
    classifier = fedotp.load(tmp_path / "only" / "classifier", backbone=inputs / "tiny.safetensors")
    dataset = load_dataset(tmp_path / "data")
    predictions = run.predictions()
    found = classifier.predict([dataset.test.image(int(row)) for row in predictions.row])
    assert found.probabilities.argmax(-1).tolist() == predictions.predicted.tolist()
    of_label = found.probabilities[np.arange(len(predictions.label)), predictions.label]
    np.testing.assert_allclose(of_label, np.exp(-predictions.loss), atol=1e-5)
    assert classifier.prior is not None
    assert classifier.prior.counts.tolist() == np.bincount(dataset.train.labels).tolist()
    assert (classifier.prior.strength > 0) == (prior != 0)
    keys = {key for message in grid.answered for record in message.content.values() for key in record}
    assert not {key for key in keys if "prior" in key or "counts" in key}


def test_a_run_that_has_not_ended_does_not_replace_the_classifier_of_the_last(inputs: Path, tmp_path: Path) -> None:
    sites = parts(tmp_path, 1)
    place = tmp_path / "site-0" / "classifier" / "prompts.safetensors"
    NearGrid(sites).serve(make_deployable(inputs), tmp_path / "first")
    kept = place.read_bytes()
    other = make_deployable(inputs, seed=1)
    with pytest.raises(KeyboardInterrupt):
        NearGrid(sites, meddle={100: cut_in(2)}).serve(other, tmp_path / "second")
    assert place.read_bytes() == kept
    run = RunDirectory.open(tmp_path / "second").manifest["deployment"]["run"]
    assert (tmp_path / "site-0" / run / "classifier" / "prompts.safetensors").read_bytes() != kept
    NearGrid(sites).serve(other, tmp_path / "third")
    assert place.read_bytes() != kept
