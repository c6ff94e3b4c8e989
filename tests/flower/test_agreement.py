"""Server and sites agree, or say what they do not agree on."""

import socket
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from huggingface_hub import constants
from near_sites import QUICK, NearGrid, make_deployable, parts

from coloured_squares import draw_squares
from fedotp.clip import CLIP, TINY, save
from fedotp.clip._hub import fetch
from fedotp.errors import FedotpError
from fedotp.federation import Metric
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._serve import serve
from fedotp.flower.site._app import stay_offline
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import evaluate_run, restore
from runs.toy_run import COLOURS


def own(folder: Path, inputs: Path, colours: dict[str, Any], name: str) -> dict[str, Any]:
    """A site with its own folder of images."""
    draw_squares(folder / f"{name}-data", colours, 10)
    backbone = str(inputs / "tiny.safetensors")
    return {"data": str(folder / f"{name}-data"), "name": name, "state": str(folder / name), "backbone": backbone}


def test_a_site_with_another_class_is_refused_and_told_which(inputs: Path, tmp_path: Path, lines: Any) -> None:
    pink = {**COLOURS, "pink": (250, 150, 200)}
    grid = NearGrid({1: own(tmp_path, inputs, dict(COLOURS), "good"), 2: own(tmp_path, inputs, pink, "odd")})
    run = grid.serve(make_deployable(inputs), tmp_path / "run", classes=tuple(COLOURS))
    assert "site odd was refused: site odd has the class 'pink'" in lines.text
    assert [client["name"] for client in run.summary["clients"]] == ["good"]


def test_sites_with_different_classes_are_told_to_name_them(inputs: Path, tmp_path: Path) -> None:
    fewer = {name: colour for name, colour in COLOURS.items() if name != "green"}
    grid = NearGrid({1: own(tmp_path, inputs, dict(COLOURS), "all"), 2: own(tmp_path, inputs, fewer, "few")})
    with pytest.raises(FedotpError, match=r"different classes: all has .*green.*; few has|--classes"):
        grid.serve(make_deployable(inputs), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_site_with_another_backbone_is_refused(inputs: Path, tmp_path: Path, lines: Any) -> None:
    save(CLIP.random(TINY, seed=1), tmp_path / "other.safetensors")
    sites = parts(tmp_path, 2)
    sites[101]["backbone"] = str(tmp_path / "other.safetensors")
    NearGrid(sites).serve(make_deployable(inputs), tmp_path / "run")
    assert "site site-1 was refused: site site-1 has backbone" in lines.text


def test_a_site_is_who_its_key_says_and_without_one_is_not_asked(inputs: Path, tmp_path: Path, lines: Any) -> None:
    grid = NearGrid(parts(tmp_path, 3))
    serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", nodes={100: "site-0", 101: "site-9"})  # type: ignore[arg-type]
    assert "site site-1 uses the key of site site-9" in lines.text
    assert all(message.metadata.dst_node_id != 102 for message in grid.sent)


def test_too_few_sites_end_the_wait(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 2))
    settings = ServerSettings(min_sites=3, start_timeout=0.2)
    with pytest.raises(FedotpError, match="only 2 of 3 sites connected"):
        grid.serve(make_deployable(inputs), tmp_path / "run", settings)


def test_the_server_cannot_make_a_site_open_a_file(inputs: Path, tmp_path: Path, lines: Any) -> None:
    site = own(tmp_path, inputs, dict(COLOURS), "careful")
    del site["backbone"]
    with pytest.raises(FedotpError, match="every site was refused"):
        NearGrid({1: site}).serve(make_deployable(inputs), tmp_path / "run")
    assert "specify its path at this site with --backbone" in lines.text


def test_the_server_cannot_make_a_site_download_even_if_its_own_images_came_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # read when the site's images were
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_args, **_options: looked_up.append(host))
    stay_offline()
    with pytest.raises(FedotpError, match="cannot download ViT-B/16"):
        fetch("ViT-B/16", cache_dir=tmp_path)
    assert looked_up == []


@pytest.mark.parametrize("share", ["nothing", "loss", "scores", "predictions"])
def test_a_site_tells_what_it_chose_to_tell(share: str, inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 2, share=share))
    run = grid.serve(make_deployable(inputs), tmp_path / "run")
    told = {key for reply in grid.answered for record in reply.content.metric_records.values() for key in record} | {
        key for reply in grid.answered for key in reply.content.array_records
    }
    expected = {"num-examples", "images", "arrays"}
    expected |= {"loss"} if share != "nothing" else set()
    expected |= {"accuracy", "balanced-accuracy", "macro-f1"} if share in ("scores", "predictions") else set()
    expected |= {"predictions"} if share == "predictions" else set()
    assert told == expected
    assert bool(run.summary["final"]) == (share in ("scores", "predictions"))
    assert (run.path / "predictions.npz").exists() == (share == "predictions")
    assert (next(run.metrics("round"))["loss"] is None) == (share == "nothing")


def test_a_site_tells_a_metric_that_was_added_and_one_of_an_older_version_does_not(
    inputs: Path, tmp_path: Path, worst_recall: Metric
) -> None:
    def forget(_asked: Message, reply: Message) -> Message:
        for record in reply.content.metric_records.values():
            record.pop("worst-recall", None)
        return reply

    run = NearGrid(parts(tmp_path, 2), meddle={101: forget}).serve(make_deployable(inputs), tmp_path / "run")
    new, old = run.summary["clients"]
    assert new["worst_recall"] == run.summary["final"]["worst_recall"]
    assert new.keys() - old.keys() == {"worst_recall"}
    assert list(run.metrics("evaluation"))[-1]["client_worst_recall"] == [new["worst_recall"], None]
    assert evaluate_run(run.path).totals() == run.summary["final"]


def test_a_deployed_run_is_a_run(inputs: Path, tmp_path: Path) -> None:
    run = NearGrid(parts(tmp_path, 2)).serve(make_deployable(inputs), tmp_path / "run")
    assert RunDirectory.open(run.path).is_deployed
    assert evaluate_run(run.path).mean == run.summary["final"]["accuracy"]
    with pytest.raises(FedotpError, match="run of real sites"):
        restore(run.path)
    with pytest.raises(FedotpError, match="run of real sites"):
        evaluate_run(run.path, ["method.mass=0.5"])


@pytest.mark.parametrize(
    "sections",
    [
        {"federation": {"dropout": 0.5}},
        {"federation": {"holdout_clients": 1}},
        {"evaluation": {"views": ["personal", "base"]}},
        {"data": {"classes": "base"}},
        {"authors": {"normalisation": "cifar10"}},
        {"attack": {"name": "scaled"}},
    ],
)
def test_what_only_a_simulation_can_do_is_refused(sections: dict[str, Any], inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 2))
    with pytest.raises(FedotpError, match="for simulations"):
        grid.serve(make_deployable(inputs, **sections), tmp_path / "run")
