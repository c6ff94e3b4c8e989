"""Locks between processes: they end with their holder, and looking at one blocks no other process."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from fedotp._files import held, is_held
from fedotp.errors import FedotpError

_HOLD = """
import sys
from pathlib import Path
from fedotp._files import held
with held(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / "state" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert is_held(lock)
        with pytest.raises(FedotpError, match=r"^busy$"), held(lock, "busy"):
            pass
        holder.kill()
    assert not is_held(lock)
    with held(lock, "busy"):
        assert is_held(lock)


def test_two_that_look_do_not_take_each_other_for_a_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)  # and does not make it
    assert not lock.exists()
    lock.touch(mode=0o400)
    with lock.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_held(lock)


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FedotpError, match=r"cannot write .*lock"), held(tmp_path / "lock", "busy"):
        pass
    assert not (tmp_path / "elsewhere").exists()
