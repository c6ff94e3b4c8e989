"""Flower's differential-privacy wrappers around a method's server step."""

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Message
from near_sites import NearGrid, make_deployable, named, parts

from fedotp.errors import FedotpError
from fedotp.federation import load_server
from fedotp.flower._serve import resume_serving, serve
from fedotp.flower._settings import ServerSettings


def run_private(inputs: Path, folder: Path, settings: ServerSettings, **sections: object) -> tuple[NearGrid, object]:
    grid = NearGrid(parts(folder, 3))
    config = make_deployable(inputs, federation={"rounds": 2}, **sections)
    return grid, serve(grid, config, settings, folder / "run", **named(grid))


def updates(grid: NearGrid) -> list[np.ndarray]:
    """What the sites sent in the first round."""
    replies = [
        reply
        for message, reply in zip(grid.sent, grid.answered, strict=True)
        if message.metadata.message_type == "train" and message.metadata.group_id == "1"
    ]
    return [np.array(reply.content.array_records["arrays"]["shared"].numpy(), np.float64) for reply in replies]


@pytest.mark.parametrize("privacy", ["server", "client", "adaptive"])
def test_without_noise_and_with_a_wide_norm_it_is_the_plain_mean(privacy: str, inputs: Path, tmp_path: Path) -> None:
    settings = ServerSettings(privacy=privacy, noise=0.0, clip=1e6)  # type: ignore[arg-type]
    grid = NearGrid(parts(tmp_path, 3))
    config = make_deployable(inputs, federation={"rounds": 1})
    run = serve(grid, config, settings, tmp_path / "run", **named(grid))
    mean = torch.from_numpy(np.mean(updates(grid), 0)).float()  # all sites alike, whatever their numbers of images
    torch.testing.assert_close(load_server(run.checkpoint)["shared"], mean, atol=1e-6, rtol=0)


@pytest.mark.parametrize("privacy", ["server", "client"])
def test_the_average_moves_by_no_more_than_the_norm(privacy: str, inputs: Path, tmp_path: Path) -> None:
    settings = ServerSettings(privacy=privacy, noise=0.0, clip=1e-3)  # type: ignore[arg-type]
    grid = NearGrid(parts(tmp_path, 3))
    run = serve(grid, make_deployable(inputs, federation={"rounds": 1}), settings, tmp_path / "run", **named(grid))
    order = next(message for message in grid.sent if message.metadata.message_type == "train")
    start = torch.from_numpy(order.content.array_records["arrays"]["shared"].numpy().copy())
    moved = (load_server(run.checkpoint)["shared"] - start).norm()
    assert 0 < moved <= 1e-3 * (1 + 1e-4)
    if privacy == "client":  # it was clipped before it left
        assert all(np.linalg.norm(update - start.numpy()) <= 1e-3 * (1 + 1e-4) for update in updates(grid))


def test_noise_is_added(inputs: Path, tmp_path: Path) -> None:
    silent = run_private(inputs, tmp_path / "silent", ServerSettings(privacy="server", noise=0.0, clip=0.1))[1]
    noisy = run_private(inputs, tmp_path / "noisy", ServerSettings(privacy="server", noise=1.0, clip=0.1))[1]
    apart = (load_server(silent.checkpoint)["shared"] - load_server(noisy.checkpoint)["shared"]).std()
    assert 0.1 / 3 / 2 < apart < 0.1 / 3 * 4  # the noise of two rounds, of deviation clip / sites each, and its effects


def test_the_privacy_spent_is_accounted_for_and_not_forgotten(inputs: Path, tmp_path: Path) -> None:
    accounting = pytest.importorskip("dp_accounting")
    settings = ServerSettings(privacy="server", noise=2.0, clip=0.1, delta=1e-5)
    _, run = run_private(inputs, tmp_path, settings)
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(accounting.GaussianDpEvent(2.0), 2)
    spent = run.summary["privacy"]
    assert spent["releases"] == 2
    assert spent["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)


def test_a_resumed_run_keeps_its_privacy(inputs: Path, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    settings = ServerSettings(privacy="server", noise=2.0, clip=0.1, delta=1e-5)
    sites = parts(tmp_path, 3)

    def cut(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and message.metadata.group_id == "2":
            raise KeyboardInterrupt
        return reply

    grid = NearGrid(sites, meddle={100: cut})
    config = make_deployable(inputs, federation={"rounds": 2})
    with pytest.raises(KeyboardInterrupt):
        serve(grid, config, settings, tmp_path / "run", **named(grid))
    again = NearGrid(sites)
    with pytest.raises(FedotpError, match="the run began with 'server'"):
        resume_serving(again, tmp_path / "run", ServerSettings(privacy="adaptive"), **named(again))
    run = resume_serving(again, tmp_path / "run", ServerSettings(), **named(again))
    assert run.summary["privacy"]["releases"] == 2


def test_the_run_ends_before_too_much_is_spent(inputs: Path, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    settings = ServerSettings(privacy="server", noise=2.0, clip=0.1, delta=1e-5, max_epsilon=2.5)
    with pytest.raises(FedotpError, match="max_epsilon"):
        run_private(inputs, tmp_path, settings)


@pytest.mark.parametrize("method", ["coop", "promptfl-fedamp"])
def test_a_method_without_an_average_is_refused(method: str, inputs: Path, tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match="no average to protect"):
        run_private(inputs, tmp_path, ServerSettings(privacy="server"), method={"name": method})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"privacy": "some"}, "none, server, client or adaptive"),
        ({"delta": 1e-5}, "accounted for"),
        ({"privacy": "server", "max_epsilon": 1.0}, "needs delta"),
        ({"clip": 0}, "clip"),
        ({"round_timeout": 0}, "round-timeout"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(FedotpError, match=reason):
        ServerSettings(**options)  # type: ignore[arg-type]


def test_settings_come_from_flowers_run_configuration() -> None:
    given = {"min-sites": 3, "round-timeout": 10, "privacy": "server", "config": "demo"}
    assert ServerSettings.of(given) == ServerSettings(min_sites=3, round_timeout=10.0, privacy="server")
    with pytest.raises(FedotpError, match="wrong type"):
        ServerSettings.of({"min-sites": "many"})
