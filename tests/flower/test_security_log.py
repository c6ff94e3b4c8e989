"""The security log continues its chain in every case, and shows every later change."""

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedotp.cli import app
from fedotp.errors import FedotpError
from fedotp.flower._events import record
from fedotp.flower.records import _security_log, check_logs, security_log
from fedotp.flower.records._chain import FIRST, Chain


def write(path: Path, numbers: Sequence[int]) -> None:
    with security_log(path):
        for number in numbers:
            record("disconnected", site=f"site-{number}")


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "a.jsonl", range(4))
    write(tmp_path / "a.jsonl", range(3))  # restarted
    return tmp_path / "a.jsonl"


def test_an_honest_log_is_valid_and_only_its_owner_can_read_it(log: Path) -> None:
    check = check_logs([log])
    assert (check.n_lines, check.wrong, check.notes) == (7, [], [])
    assert check.events == {"disconnected": 7}
    assert log.stat().st_mode & 0o077 == 0
    shown = CliRunner().invoke(app, ["log", "check", str(log)])
    assert shown.exit_code == 0
    assert shown.output.startswith("valid: 7 lines, 20")


def test_every_changed_bit_is_found_at_its_line(log: Path) -> None:
    whole, draws = log.read_bytes(), random.Random(0)
    head = log.with_name(f".{log.name}.head")
    end = range(8 * len(whole) - 8, 8 * len(whole))
    for bit in [*draws.sample(range(8 * len(whole)), 100), *end]:
        flip(log, bit)
        line = whole[: bit // 8].count(b"\n") + 1
        found = check_logs([log]).wrong
        assert any(f"line {line}:" in each or "is missing" in each for each in found[:1]), bit
        flip(log, bit)
    for bit in range(0, 8 * head.stat().st_size, 5):
        flip(head, bit)
        with pytest.raises(FedotpError, match=r"missing|was changed"):
            raise FedotpError(check_logs([log]).wrong[0])
        flip(head, bit)
    assert not check_logs([log]).wrong


@pytest.mark.parametrize("keep", [slice(3), slice(1, None), slice(None, None, 2), slice(None, None, -1)])
def test_removed_and_moved_lines_are_found(keep: slice, log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[keep]))
    check = check_logs([log])
    assert check.wrong or "is not in these files" in check.notes[0]
    write(log, range(2))  # removed lines stay removed if the log continues
    assert check_logs([log]).wrong or check.notes
    log.with_name(f".{log.name}.head").unlink()
    assert "removed last lines cannot be detected" in check_logs([log]).notes[0]


def test_a_log_of_others_cannot_control_the_terminal(log: Path) -> None:
    Chain(log).append({"time": "\x1b[1m", "event": "\x1b[2J"})
    shown = CliRunner().invoke(app, ["log", "check", str(log)], color=True)
    assert shown.exit_code == 0
    assert "\x1b" not in shown.output


@pytest.mark.parametrize("content", [{}, {"n": "1"}, {"n": [1]}, {"n": None}, {"n": 1}, {"previous": FIRST}])
def test_a_line_with_a_hash_and_without_its_place_is_found(content: dict[str, object], log: Path) -> None:
    body = json.dumps({"event": "stop", **content}, separators=(",", ":"))[:-1].encode()
    forged = log.with_name("forged")
    forged.write_bytes(b'%s,"hash":"%s"}\n' % (body, hashlib.sha256(body).hexdigest().encode()))
    assert f"{forged}, line 1: it contains no number, or no hash of the line before" in check_logs([log, forged]).wrong


def test_a_head_of_another_length_is_one_line(log: Path) -> None:
    log.with_name(f".{log.name}.head").write_bytes(b"1" * 1000)
    with pytest.raises(FedotpError, match="was changed: it must contain the number and the hash"):
        check_logs([log])


def test_the_chain_continues_in_a_new_file(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = log.rename(log.with_name("old"))  # as logrotate does
    write(log, range(3))
    monkeypatch.setattr(_security_log, "_LONGEST", 500)
    write(log, range(6))
    others = sorted(log.parent.glob("a.jsonl.*"))
    assert others
    check = check_logs([log, *others, moved])
    assert (check.n_lines, check.wrong, check.notes) == (16, [], [])
    assert "is not in these files" in check_logs([log, *others]).notes[0]
    assert "is not in these files" in check_logs([log, *others[1:], moved]).wrong[0]


def test_a_line_cut_short_by_a_power_cut_is_discarded(log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"n":8,"ti')
    check = check_logs([log])
    assert not check.wrong
    assert "incomplete" in check.notes[0]
    write(log, range(1))
    assert (check_logs([log]).n_lines, check_logs([log]).wrong) == (8, [])


def test_a_log_that_was_changed_at_its_end_is_not_continued(log: Path) -> None:
    for bit in (8 * log.stat().st_size - 100, 8 * log.stat().st_size - 1):
        flip(log, bit)
        with pytest.raises(FedotpError, match="its last line was changed; move the file away and keep it"):
            write(log, range(1))
        flip(log, bit)
    with security_log(log.with_name("b")), pytest.raises(FedotpError, match="in use"):
        write(log.with_name("b"), range(1))
