"""The membership probe catches what was learned by heart, and nothing where nothing was learned."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import fedotp
from cli.cli_made import command
from coloured_squares import draw_day_and_night
from federation.toy_federation import CLASSES, make_data, make_settings, simulator
from fedotp.audit import Probe, probe_federation
from fedotp.clip import CLIP, TINY, save
from fedotp.data import load_dataset
from fedotp.federation import FederatedData, Images, Simulator
from fedotp.federation.testing import ZERO_SHOT
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import run
from runs.toy_run import COLOURS, make_config


def by_heart() -> FederatedData:
    """Labels that mean nothing: what is learned of them is learned by heart."""
    stream, data = np.random.default_rng(3), make_data((10,) * 3, (30,) * 3)

    def meaningless(images: Images) -> Images:
        return replace(images, labels=stream.integers(0, len(CLASSES), len(images.labels)))

    return replace(data, train=meaningless(data.train), test=meaningless(data.test))


def trained(method: str, rounds: int) -> Simulator:
    hard = make_settings(rounds=rounds, local_epochs=10, batch_size=10, optimizer={"name": "adam"})
    federation = simulator(method, hard, data=by_heart())
    for _ in range(rounds):
        federation.run_round()
    return federation


def areas(found: Probe) -> dict[tuple[str, str], tuple[float, float]]:
    return {(one.target, one.score): (one.separation.auc.low, one.separation.auc.high) for one in found.attacks}


def test_what_was_learned_by_heart_is_caught():
    shared = areas(probe_federation(trained("promptfl", 8)))
    assert shared["global", "loss"][0] > 0.5
    found = probe_federation(trained("coop", 4))
    personal = areas(found)
    assert personal["personal", "loss"][0] > 0.5
    assert personal["personal", "learned"][0] > 0.5
    assert not any(target == "global" for target, _ in personal)  # CoOp shares nothing
    assert found.is_fair


@pytest.mark.parametrize("method", ["promptfl", "fedotp"])
def test_untrained_prompts_tell_nothing(method):
    found = probe_federation(trained(method, 0))
    for low, high in areas(found).values():
        assert low <= 0.5 <= high
    assert (found.members, found.others, found.round) == (30, 90, 0)


def test_area_is_that_of_the_losses_of_the_classifiers():
    """By hand: one client's images one by one through its own predictor."""
    federation = trained("fedotp", 1)
    client = np.array([1])
    predictor = federation.predictor(client)
    losses, marks = [], []
    for images, mark in ((federation.data.train, 1), (federation.data.test, 0)):
        rows = images.clients[1][None]
        image, labels = images.read(rows, 0, torch.device("cpu"), torch.float32)
        losses += predictor.judge(image, labels)[1][0].tolist()
        marks += [mark] * rows.size
    attack = next(
        one for one in probe_federation(federation).attacks if (one.target, one.score) == ("personal", "loss")
    )
    assert attack.separation.by_client[1].value == pytest.approx(roc_auc_score(marks, [-loss for loss in losses]))


def test_images_that_differ_from_the_start_are_noticed():
    """Members that zero-shot CLIP is right about, others that it is wrong about."""
    federation = trained("promptfl", 0)
    sides = {}
    for part, shift in (("train", 0), ("test", 1)):
        images = getattr(federation.data, part)
        lines = federation.judge(np.arange(3), images)[ZERO_SHOT]
        labels = images.labels.copy()
        labels[lines.row] = (lines.predicted + shift) % len(CLASSES)
        sides[part] = replace(images, labels=labels)
    federation.data = replace(federation.data, **sides)
    assert not probe_federation(federation).is_fair


# The command ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run, and the bundle of one of its clients."""
    inputs = tmp_path_factory.mktemp("probed")
    save(CLIP.random(TINY), inputs / "tiny.safetensors")
    draw_day_and_night(inputs / "data", COLOURS, 12)
    config = make_config(inputs, partition={"n_clients": 1}, federation={"holdout_clients": 0})
    done = run(config, inputs / "run")
    fedotp.load(done.path).save(inputs / "bundle")
    return inputs


def test_a_run_is_probed(made):
    done = command("audit", made / "run", "--probe")
    assert done.status == 0, done.err
    assert all(said in done.out for said in ("global", "zero-shot CLIP", "at least"))
    kept = RunDirectory.open(made / "run").finding("probe")
    assert [(one["target"], one["score"]) for one in kept["attacks"]] == [
        (target, score) for target in ("personal", "global") for score in ("loss", "learned")
    ]
    assert kept["members"] == RunDirectory.open(made / "run").manifest["data"]["train_images"]


def test_a_bundle_is_probed_by_its_run_and_by_folders(made, tmp_path):
    backbone = ("--backbone", made / "tiny.safetensors")
    by_run = command("audit", made / "bundle", "--probe", "--run", made / "run", *backbone, "--json")
    assert by_run.status == 0, by_run.err
    dataset = load_dataset(str(made / "data"))
    client = RunDirectory.open(made / "run").partition.clients[0]
    for part, split, rows in (("in", dataset.train, client.train), ("out", dataset.test, client.test)):
        for row in rows:
            place = tmp_path / part / dataset.classes[split.labels[row]]
            place.mkdir(parents=True, exist_ok=True)
            split.image(int(row)).save(place / f"{row}.png")
    words = ("--members", tmp_path / "in", "--others", tmp_path / "out", "--out", tmp_path / "found.json")
    by_folder = command("audit", made / "bundle", "--probe", *words, *backbone)
    assert by_folder.status == 0, by_folder.err
    one, other = json.loads(by_run.out), json.loads((tmp_path / "found.json").read_text())
    assert (one["members"], one["others"]) == (len(client.train), len(client.test))
    assert [attack["auc"]["value"] for attack in one["attacks"]] == pytest.approx(
        [attack["auc"]["value"] for attack in other["attacks"]], abs=0.05
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--members", "data"), "--members: only with --probe of a bundle"),
        (("bundle",), "give --run RUN"),
        (("bundle", "--members", "data"), "give --run RUN"),
        (("bundle", "--members", "data/day", "--others", "store"), "no image in"),
        (("nowhere", "--run", "run"), "neither a run nor a bundle"),
    ],
)
def test_what_cannot_be_probed_is_refused(made, monkeypatch, words, said):
    monkeypatch.chdir(made)
    done = command("audit", "--probe", *words, "--backbone", "tiny.safetensors")
    assert done.status == 2
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_a_bundle_of_another_run_is_refused(made, tmp_path):
    other = run(make_config(made, seed=1, federation={"rounds": 0}), tmp_path / "other")
    done = command("audit", made / "bundle", "--probe", "--run", other.path, "--backbone", made / "tiny.safetensors")
    assert done.status == 2
    assert "its members are others" in done.err
