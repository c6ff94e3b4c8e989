"""A server that lies in secure sums, to unmodified sites that have real keys and insist on secure sums.

Each lie would let it compute one site's update, or a part of it: all sites but the target do something whose result is
known beforehand, or hardly count; or two sums of a round differ by one site. The server is not given the sites' public
keys: a liar would not check signatures.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from near_sites import NearGrid, make_deployable, prompt_in, with_keys

from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint
from fedotp.flower._agreement import Agreement
from fedotp.flower._wire import to_record
from fedotp.flower.secure import Advert, VoidSumError
from fedotp.flower.server import ServerSettings, _secure_rounds
from fedotp.flower.server._registration import Member
from fedotp.methods import METHODS

pytestmark = pytest.mark.usefixtures("hurry")

SECURE = ServerSettings(secure=True, round_timeout=0.2, patience=0.0)
TARGET = 102
KEYS, SHARES, TRAIN, SIGNATURES = "query.secure_keys", "query.secure_shares", "train", "query.secure_signatures"
IMAGES = [7, 4, 5, 12]  # of the four sites


def of_sites(inputs: Path, n: int = 4, rounds: int = 1) -> Any:
    return make_deployable(inputs, federation={"rounds": rounds}).override([f"partition.n_clients={n}"])


def facts(message: Message) -> Any:
    return message.content.config_records.get("config", {})


def answers(grid: NearGrid, step: str) -> list[Message]:
    """Those in which a site does what it is asked to in a step."""
    return [each for each in grid.answered if each.metadata.message_type == step and "refused" not in facts(each)]


def weights(grid: NearGrid) -> list[int]:
    return [Advert.of("", facts(each)["secure_keys"]).weight for each in answers(grid, KEYS)]


# One sum -----------------------------------------------------------------------------------------------------------


Forge = Callable[[Message], None]


def forging(key: str, **changes: Any) -> Forge:
    """Another "agreement" or "session"."""

    def forge(message: Message) -> None:
        facts(message)[key] = json.dumps({**json.loads(facts(message)[key]), **changes}, sort_keys=True)

    return forge


def standing_still(message: Message) -> None:
    """Another configuration in the agreement: a site adds the prompt that it received."""
    config = json.loads(facts(message)["agreement"])["config"]
    config["optimizer"] |= {"lr": 1e-12, "weight_decay": 0.0}
    forging("agreement", config=config)(message)


def consistent(message: Message) -> None:
    """Another configuration, and a session that says so."""
    standing_still(message)
    forging("session", agreement=Agreement.of(facts(message)).digest)(message)


def zeroed(message: Message) -> None:
    """Another prompt."""
    zeros = torch.zeros(prompt_in(message).shape)
    message.content.array_records["arrays"] = to_record({"shared": zeros})


def saying(key: str, value: object) -> Forge:
    return lambda message: facts(message).update({key: value})


def outweighed(message: Message) -> None:
    """On the way, the first site's weight becomes 1."""
    contents = list(facts(message)["parts"])
    contents[0] = replace(Advert.of("", contents[0]), weight=1).content
    facts(message)["parts"] = contents


LIES: dict[str, tuple[str, Forge, str]] = {
    "another agreement in the order": (TRAIN, standing_still, "a secure sum that does not match the agreement"),
    "another agreement that is signed": ("", consistent, "invalid signature"),
    "a plain order": (TRAIN, forging("agreement", secure=None), "policy: secure sums are required"),
    "another prompt in the order": (TRAIN, zeroed, "prompt is not the one that the sites of the secure sum"),
    "another prompt that is signed": ("", forging("session", prompt="0" * 64), "invalid signature"),
    "another round in the order": (TRAIN, saying("server-round", 9), r"signed .* = \(\d, 1, 0\), got \(\d, 9, 0\)"),
    "a start that is yet to come": (KEYS, saying("accepted", 1), "must be below the current round 1, got 1"),
    "another bound on weights": (
        "",
        forging("session", most_images=1),
        "site site-2: must be from 1 to 1 images, got 5",
    ),
    "another weight of a site": (SHARES, outweighed, "does not contain this site's own keys|invalid signature"),
    "no session in the order": (TRAIN, saying("session", ""), "contains no valid secure sum"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_to_all_sites_but_one_opens_nothing(
    lie: str, inputs: Path, tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    step, forge, why = LIES[lie]

    def to_others(message: Message) -> None:
        is_of_it = message.metadata.message_type == step if step else "session" in facts(message)
        if is_of_it and message.metadata.dst_node_id != TARGET:
            forge(message)

    grid, _ = with_keys(tmp_path, 4, policy="secure_sums = true")
    grid.forge = to_others
    with pytest.raises(FedotpError, match="round 1: secure sum failed 2 times"):
        grid.serve(of_sites(inputs), tmp_path / "run", SECURE)
    refusals = [line for line in lines.messages if line.startswith("request refused: ")]
    assert len([line for line in refusals if re.search(why, line)]) >= 2 * 3  # all others, in each sum
    assert len(answers(grid, TRAIN)) <= 2  # the target's at most: of one site, nothing can be opened
    assert not answers(grid, SIGNATURES)


# Weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 5])
def test_a_site_counts_with_its_own_images_up_to_the_bound_that_all_sign(
    most: int, inputs: Path, tmp_path: Path
) -> None:
    """And the sum is the plain federation's under the same bound."""
    averages = []
    for settings in (replace(SECURE, max_images=most), replace(SECURE, max_images=most, secure=False)):
        grid, keys = with_keys(tmp_path / str(settings.secure), 4)
        out = tmp_path / str(settings.secure) / "run"
        run = grid.serve(of_sites(inputs), out, settings, public_keys=keys)
        averages.append(Checkpoint.read(run.checkpoint).server)
        assert weights(grid) == ([min(n, most or max(IMAGES)) for n in IMAGES] if settings.secure else [])
    torch.testing.assert_close(*averages, rtol=0, atol=1e-6)


def test_a_site_that_counts_with_more_than_was_agreed_on_is_left_out(
    inputs: Path, tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    grid, keys = with_keys(tmp_path, 4)

    def modest(message: Message, reply: Message) -> Message:
        if "train-images" in facts(reply):
            facts(reply)["train-images"] = 3
        return reply

    grid.meddle[103] = modest
    run = grid.serve(of_sites(inputs), tmp_path / "run", SECURE, public_keys=keys)
    assert next(iter(run.metrics("round")))["answered"] == [0, 1, 2]
    assert "site site-3: its weight must be from 1 to the agreed 3 images, got 7" in lines.text


# Two sums ----------------------------------------------------------------------------------------------------------


def another_site(members: list[Member], grid: NearGrid) -> None:
    """A colluder under the number that the target had; it can say itself what it has added."""
    members[3], members[4] = members[4], members[3]
    grid.offline = {103}


def another_bound(members: list[Member], grid: NearGrid) -> None:
    """Only the largest site counts with less than before."""
    for member in members:
        member.agreed = min(member.agreed, sorted(each.agreed for each in members)[-2])


def another_start(members: list[Member], grid: NearGrid) -> None:
    """One site starts from its initial private prompt."""
    members[2].accepted = 0


def another_number(members: list[Member], grid: NearGrid) -> None:
    """Two sites draw their batches otherwise."""
    members[1], members[2] = members[2], members[1]


@pytest.mark.parametrize("lie", [another_site, another_bound, another_start, another_number])
def test_a_second_sum_of_a_round_must_be_of_the_same_sites_weights_and_starts(
    lie: Callable[[list[Member], NearGrid], None],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: pytest.LogCaptureFixture,
) -> None:
    """In the second round, the server opens the sum, says that it was void, and asks for another one."""
    grid, _ = with_keys(tmp_path, 5, policy="secure_sums = true")
    grid.offline = {104}
    total, opened, attempts = _secure_rounds.ServerSession.total, [], []
    begin = _secure_rounds.SecureRound.__init__

    def beginning(attempt: Any, *given: Any) -> None:
        attempts.append(given[0].registration.registry)
        begin(attempt, *given)

    def once_more(attempt: _secure_rounds.ServerSession) -> np.ndarray:
        opened.append(total(attempt))
        if attempt.session.round == 2:
            lie(attempts[-1].members, grid)
            raise VoidSumError("says the server")
        return opened[-1]

    monkeypatch.setattr(_secure_rounds.SecureRound, "__init__", beginning)
    monkeypatch.setattr(_secure_rounds.ServerSession, "total", once_more)
    settings = replace(SECURE, min_sites=4)
    with pytest.raises(FedotpError, match=r"round 2: secure sum failed 2 times in a row: only [01] of 4 sites"):
        grid.serve(of_sites(inputs, 5, rounds=2), tmp_path / "run", settings)
    assert len(opened) == 2  # one in each round
    assert lines.text.count("request refused: this site has already opened another sum of round 2") == (
        3 if lie is another_site else 4
    )


# Who can open a sum ------------------------------------------------------------------------------------------------


def test_a_threshold_just_below_two_thirds_is_refused(
    inputs: Path, tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    """Of six sites four would open a sum, so that with two of them a server has two lists of survivors signed."""
    grid, _ = with_keys(tmp_path, 6, policy="secure_sums = true")
    settings = replace(SECURE, secure_threshold=2 / 3 - 1e-6)
    with pytest.raises(FedotpError, match="every site was refused"):
        grid.serve(of_sites(inputs, 6), tmp_path / "run", settings)
    assert lines.text.count("policy: --secure-threshold must be at least 0.6666666667, got 0.6666656667") >= 6


def test_a_method_that_sends_each_site_another_prompt_has_no_secure_sums(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(method: Any, server: dict[str, torch.Tensor], clients: torch.Tensor | None, n: int) -> Any:
        shift = 0 if clients is None else clients.float().mean()
        return {name: (value + shift).expand(n, *value.shape) for name, value in server.items()}

    monkeypatch.setattr(METHODS["fedotp"], "send", send)
    grid, _ = with_keys(tmp_path, 4)
    with pytest.raises(FedotpError, match="require a method whose server sends the same prompt to all sites"):
        grid.serve(of_sites(inputs), tmp_path / "run", SECURE)
