"""Verification of real sites' runs: every aggregation is repeated, every forgery is found and located."""

import hashlib
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from flwr.app import Array, Message
from near_sites import NearGrid, cut_in, make_deployable, silent, with_keys

from fedotp.errors import FedotpError
from fedotp.flower import _wire as wire
from fedotp.flower._wire import digest_of
from fedotp.flower.keys import KeyIdentity, ServerKeys, key_fingerprint, request_key, sign_request
from fedotp.flower.records import Statement, Transcript, check_logs, read_chain, security_log
from fedotp.flower.records._chain import Chain
from fedotp.flower.server import ServerSettings, verify_run

KINDS: dict[str, tuple[dict[str, Any], ServerSettings]] = {
    "plain": ({}, ServerSettings()),
    "momentum": ({"server": {"name": "momentum"}}, ServerSettings(max_times=1.0)),
    "adam": ({"server": {"name": "adam"}}, ServerSettings()),
    "krum": ({"server": {"rule": "multi-krum", "malicious": 0}}, ServerSettings(max_images=3)),
    "median": ({"server": {"rule": "median"}}, ServerSettings()),
    "FedAMP": ({"method": {"name": "promptfl-fedamp"}}, ServerSettings()),
    "ridge": ({"method": {"name": "ridge"}, "federation": {"rounds": 1}}, ServerSettings()),
    "local": ({"method": {"name": "coop"}}, ServerSettings()),
    "central noise": ({"privacy": {"unit": "site", "noise": 1.0, "delta": 1e-3}}, ServerSettings()),
    "secure": ({}, ServerSettings(secure=True)),
}


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("site-*/transcripts/*.jsonl"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_aggregation_is_repeated_bit_for_bit(kind: str, inputs: Path, tmp_path: Path) -> None:
    sections, settings = KINDS[kind]
    grid, keys = with_keys(tmp_path, 3)
    run = grid.serve(make_deployable(inputs, **sections), tmp_path / "run", settings, public_keys=keys)
    found = verify_run(run.path, logs_of(tmp_path))
    assert (found.wrong, len(found.notes)) == ([], 3 * (kind == "krum")), found.notes  # its weights are limited
    assert found.rounds == found.repeated == run.config.federation.rounds
    assert found.statements == 3 * found.rounds
    rewrite_round(tmp_path, lambda content: content["sites"]["site-1"].update(weight=99), round_=1)
    assert "round 1, site site-1: its weight is 99, must be " in verify_run(run.path).wrong[0]


# Forgeries -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def honest(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds with keys, the transcripts of its sites, and the server's security log."""
    folder = tmp_path_factory.mktemp("honest")
    grid, keys = with_keys(folder, 3, share="predictions")
    given = make_deployable(inputs)
    with security_log(folder / "run.security.jsonl"):
        grid.serve(given, folder / "run", public_keys=keys)
    return folder


def wrong_in(folder: Path) -> list[str]:
    """What verification of the run, the sites' transcripts and the security log finds."""
    try:
        return verify_run(folder / "run", logs_of(folder)).wrong + check_logs([folder / "run.security.jsonl"]).wrong
    except FedotpError as error:
        return [str(error)]


def test_a_thousand_forged_bits_are_found_and_located(honest: Path) -> None:
    files = [*logs_of(honest), honest / "run.security.jsonl"]
    files += [file for file in sorted((honest / "run").rglob("*")) if file.stat().st_size and file.is_file()]
    assert {file.name for file in files} >= {"metrics.jsonl", "checkpoint.safetensors", "00002.safetensors"}
    assert wrong_in(honest) == []
    draws = random.Random(0)
    for _ in range(1000):
        file = draws.choice(files)
        whole = file.read_bytes()
        bit = draws.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        found = wrong_in(honest)
        file.write_bytes(whole)
        line = whole[: bit // 8].count(b"\n") + 1
        assert found, (file, bit)
        assert all(_is_located(each, file, line) for each in found), (file, bit, found)
    for file in (*logs_of(honest), honest / "run/transcript.jsonl"):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + b"\x0b")  # otherwise the end of a killed process
        assert any("its end was changed" in each for each in wrong_in(honest))
        file.write_bytes(whole)
    assert wrong_in(honest) == []


def _is_located(message: str, file: Path, line: int) -> bool:
    """True if a message names the file, and in a file of lines the line, or the first and last of a group."""
    name = file.name if file.parents[0].name in ("run", "state") else str(file)
    if file.parent.name == "updates":
        return f"round {int(file.stem)}" in message and f"updates/{file.name}" in message
    if file.suffix != ".jsonl":
        return name in message
    place = re.search(r"line (\d+)(?: to (\d+))?", message)
    ends = place and (int(place[1]), int(place[2] or place[1]))
    # a changed end of line joins two lines
    return name in message and bool(ends and ends[0] <= line + 1 and line <= ends[1])


Content = dict[str, Any]


def rewrite(path: Path, change: Callable[[Content], object]) -> None:
    """Change lines of a chain and make all of its hashes anew, which no check of the chain can find."""
    contents = [dict(line.content) for line in read_chain(path)]
    path.unlink()
    chain = Chain(path)
    for content in contents:
        change(content)
        chain.append({key: value for key, value in content.items() if key not in ("n", "previous", "hash")})


def rewrite_round(folder: Path, change: Callable[[Content], object], round_: int = 2) -> None:
    """Change what the server's transcript says of a round."""
    of_round = ("round", round_)
    rewrite(
        folder / "run/transcript.jsonl",
        lambda content: change(content) if (content["kind"], content["round"]) == of_round else None,
    )


LIES: dict[str, tuple[Callable[[Content], object], str]] = {
    "parameters that are no average": (
        lambda content: content.update(params="0" * 64),
        "round 2: its aggregation gives other parameters",
    ),
    "the weight of a sum": (lambda content: content.update(weight=7), "round 2: the weight of its sum is 7, must be 0"),
    "an order that was not sent": (
        lambda content: content["sites"]["site-1"].update(order="0" * 64),
        "round 2, site site-1: .*signature",
    ),
    "swapped numbers": (
        lambda content: [each.update(number=1 - each["number"]) for each in list(content["sites"].values())[:2]],
        "round 2, site site-0: its number is 1",
    ),
    "a number that equals another": (
        lambda content: content["sites"]["site-0"].update(number=False),
        "round 2, site site-0: its number is False",
    ),
    "a negative number of images": (
        lambda content: content["agreed"].update({"site-0": -5}),
        "round 2: numbers of images and weights must be positive",
    ),
    "an update that was not counted": (
        lambda content: content["sites"].pop("site-1"),
        "round 2: its aggregation gives other parameters",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_makes_its_transcript_anew_is_found(lie: str, honest: Path, tmp_path: Path) -> None:
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    change, message = LIES[lie]
    rewrite_round(tmp_path, change)
    assert re.search(message, wrong_in(tmp_path)[0])


def test_a_server_that_omits_its_last_round_or_its_result_is_found(honest: Path, tmp_path: Path) -> None:
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "run/transcript.jsonl"
    *lines, end = [dict(line.content) for line in read_chain(path)]
    path.unlink()
    for content in (*(line for line in lines if line["round"] < 2), {**end, "round": 1, "files": {}}):
        Chain(path).append({key: value for key, value in content.items() if key not in ("n", "previous", "hash")})
    found = wrong_in(tmp_path)
    assert sum("does not mention this update" in each for each in found) == 3, found
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run/state/checkpoint.safetensors").unlink()
    rewrite(path, lambda content: content.get("files", {}).pop("state/checkpoint.safetensors", None))
    assert verify_run(tmp_path / "run").wrong == ["state/checkpoint.safetensors: it is missing"]


def test_a_server_that_signs_for_a_site_is_found_by_certificates_and_by_the_sites_transcript(
    honest: Path, tmp_path: Path
) -> None:
    """With a key of its own: what the server has recorded is consistent."""
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    _, key = request_key("site-1", tmp_path / "forged")
    sent = (line.content for line in read_chain(logs_of(tmp_path)[1]) if line.content["kind"] == "update")
    names = Statement.__dataclass_fields__
    signed = {each["round"]: Statement(**{name: each[name] for name in names}) for each in sent}

    def sign(content: Content) -> None:
        if content["kind"] == "round":
            signature = KeyIdentity(tmp_path / "forged/site.key", None).sign(signed[content["round"]].content)
            content["sites"]["site-1"] |= {"key": key, "signature": signature.hex()}

    for folder in (honest / "keys", honest / "keys/server", honest / "keys/sites/site-0"):
        assert verify_run(honest / "run", keys=folder).wrong == []
    rewrite(tmp_path / "run/transcript.jsonl", sign)
    assert verify_run(tmp_path / "run").wrong == []
    (wrong,) = verify_run(tmp_path / "run", keys=honest / "keys").wrong
    assert wrong == f"site site-1: its key {key_fingerprint(key)} is not certified in {honest / 'keys'}"
    assert any("site site-1 has another key than in transcript.jsonl" in each for each in wrong_in(tmp_path))


def test_a_server_that_forges_an_update_is_found(honest: Path, tmp_path: Path) -> None:
    """Also without a key: then by the site's own transcript."""
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "run/updates/00002.safetensors"
    updates = safetensors.torch.load(file.read_bytes())
    updates["1.shared"] *= 2
    file.write_bytes(safetensors.torch.save(updates))

    def forge(content: Content) -> None:
        content["sites"]["site-1"]["update"] = digest_of({"shared": updates["1.shared"]})
        content["sites"]["site-1"]["key"] = ""
        content["inputs"] = hashlib.sha256(file.read_bytes()).hexdigest()

    rewrite_round(tmp_path, forge)
    first, *others = wrong_in(tmp_path)
    assert first.endswith("round 2, site site-1: invalid signature of site 'site-1'")
    assert any(f"site site-1: {logs_of(tmp_path)[1]} does not contain this update" in each for each in others)


def test_inputs_that_are_none_are_one_line(honest: Path, tmp_path: Path) -> None:
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run/updates/00002.safetensors").write_bytes(b"none")
    fewer = {"inputs": hashlib.sha256(b"none").hexdigest(), "agreed": {"site-0": 1, "site-1": 1, "site-2": 1}}
    rewrite_round(tmp_path, lambda content: content.update(fewer))
    found = verify_run(tmp_path / "run")
    assert any(each.startswith("round 2: its inputs are not those of an aggregation: Safetens") for each in found.wrong)
    assert "site site-0 counts with fewer images than it signed" in found.notes[0]


def test_a_site_that_makes_its_transcript_anew_is_found(honest: Path, tmp_path: Path) -> None:
    shutil.copytree(honest, tmp_path, dirs_exist_ok=True)
    first, incomplete, last = logs_of(tmp_path)
    rewrite(incomplete, lambda content: content.pop("round", None))

    rewrite(first, lambda content: content.update(update="0" * 64) if content["kind"] == "update" else None)
    last.write_bytes(last.read_bytes().replace(b"evaluation", b"evacuation"))
    found = wrong_in(tmp_path)
    assert [each for each in found if "site site-0" in each and "does not contain this update" in each]
    assert f"{last}, line 2: the content does not match its hash" in found
    assert f"{incomplete} is not a site's transcript: KeyError 'round'" in found


def test_a_server_that_omits_an_update_or_shows_one_site_other_parameters_is_found(
    inputs: Path, tmp_path: Path
) -> None:
    grid, keys = with_keys(tmp_path, 3)
    grid.meddle[101] = silent(2)

    def forge(message: Message) -> None:
        sent = message.metadata
        if sent.message_type == "evaluate" and sent.dst_node_id == 100:
            message.content.config_records[wire.CONFIG][wire.ROUND] = 99
        if (sent.message_type, sent.dst_node_id) in [("evaluate", 102), ("train", 101 * (sent.group_id == "2"))]:
            prompt = message.content.array_records[wire.ARRAYS]
            prompt["shared"] = Array(prompt["shared"].numpy() + 1)

    grid.forge = forge
    settings = ServerSettings(round_timeout=0.5)
    grid.serve(make_deployable(inputs), tmp_path / "run", settings, public_keys=keys)
    (note,) = (each for each in verify_run(tmp_path / "run", logs_of(tmp_path)).notes if "in no average" in each)
    assert re.search(r"site-1/.*: round 2 \(no answer within 0.5 s\)$", note)
    rewrite(tmp_path / "run/transcript.jsonl", lambda content: content.pop("faults", None))
    found = verify_run(tmp_path / "run", logs_of(tmp_path)).wrong
    (omitted,) = [each for each in found if "does not mention this update" in each]
    assert re.search(r"round 2, .*site-1", omitted)
    found.remove(omitted)
    assert any("site site-0: the server's transcript has no round 99" in each for each in found)
    assert all(re.search("site site-[12]: .* received other parameters|no round 99", each) for each in found)
    assert any("round 2, site site-1: " in each for each in found)  # the order of the omitted update


# Kills, resumes, new keys and lost sites ------------------------------------------------------------------------------


class KilledError(BaseException):
    """The processes of this machine ended here."""


@pytest.mark.parametrize("at", [6, 10, 12, 14, 21, 23, 24, 26, 28, 30])
def test_a_run_that_is_killed_after_any_write_verifies_before_and_after_it_is_resumed(
    at: int, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of two rounds syncs or replaces files 32 times; it is killed again when it has resumed."""
    kills, run = [at], tmp_path / "run"

    def killing(write: Callable[..., None]) -> Callable[..., None]:
        def kill(*given: Any) -> None:
            name = str(given[-1] if len(given) > 1 else os.readlink(f"/proc/self/fd/{given[0]}"))
            write(*given)
            if kills and name.startswith(f"{run}/"):
                kills[0] -= 1
                if not kills[0]:
                    kills.pop()
                    raise KilledError

        return kill

    monkeypatch.setattr(os, "fsync", killing(os.fsync))
    monkeypatch.setattr(os, "replace", killing(os.replace))
    grid, keys = with_keys(tmp_path, 3, share="predictions")
    with pytest.raises(KilledError):
        grid.serve(make_deployable(inputs), run, public_keys=keys)
    assert verify_run(run, logs_of(tmp_path)).wrong == []
    with pytest.raises(FedotpError, match="only 0 of 0 sites connected"):
        NearGrid({}).resume(run, ServerSettings(start_timeout=0.1), public_keys=keys)
    assert verify_run(run, logs_of(tmp_path)).wrong == []
    grid.offline.add(102)  # this site is lost
    kills.append(3)  # in a repeated round: after its inputs have been replaced
    with pytest.raises(KilledError):
        grid.resume(run, ServerSettings(min_sites=2), public_keys=keys)
    assert verify_run(run, logs_of(tmp_path)).wrong == []
    grid.resume(run, ServerSettings(min_sites=2), public_keys=keys)
    found = verify_run(run, logs_of(tmp_path))
    assert (found.wrong, found.repeated) == ([], 2)
    assert len(found.notes) <= 8, found.notes


def test_a_run_verifies_in_which_a_site_got_another_key(inputs: Path, tmp_path: Path) -> None:
    grid, keys = with_keys(tmp_path, 3)
    grid.meddle[100] = cut_in(2)
    with pytest.raises(KeyboardInterrupt):
        grid.serve(make_deployable(inputs), tmp_path / "run", public_keys=keys)
    request, _ = request_key("site-1", tmp_path / "new")
    sign_request(tmp_path / "keys", request, replace=True)
    grid.nodes[101]["keys"] = str(shutil.copytree(tmp_path / "keys/sites/site-1", tmp_path / "new", dirs_exist_ok=True))
    grid.meddle.clear()
    run = grid.resume(tmp_path / "run", public_keys=ServerKeys.read(tmp_path / "keys/server").sites)
    found = verify_run(run.path, logs_of(tmp_path), tmp_path / "keys")
    assert (found.wrong, found.repeated, found.statements) == ([], 2, 6)


def test_a_release_after_the_last_line_of_a_killed_server_is_checked(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Transcript, "round")
    grid, keys = with_keys(tmp_path, 3)
    sections, settings = KINDS["central noise"]
    with pytest.raises(AttributeError):
        grid.serve(make_deployable(inputs, **sections), tmp_path / "run", settings, public_keys=keys)
    assert verify_run(tmp_path / "run").wrong == []
    file = tmp_path / "run/state/releases.jsonl"
    whole = file.read_bytes()
    for place in range(len(whole) - 1):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert verify_run(tmp_path / "run").wrong == ["state/releases.jsonl: a line of a round was changed"]
