"""Files: plain ones of a decent size are read, anything else is refused unread; the cache; locks between processes."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fedotp._files import cache_folder, held, is_held, opened_in_place, read_regular, write_atomically
from fedotp.errors import FedotpError, TransientError


def test_a_plain_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    (tmp_path / "link").symlink_to(path)
    assert read_regular(tmp_path / "link", 5) == b"12345"
    path.write_bytes(b"")
    assert read_regular(path, 5) == b""


def test_pipes_devices_and_sockets_are_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket"))  # the whole path may be too long for a socket
    for name in ("pipe", "endless", "socket"):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(tmp_path / name, 5)


def test_what_takes_the_place_of_a_plain_file_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"12345")
    was = os.stat(tmp_path / "file")
    monkeypatch.setattr(os, "stat", lambda path: was)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / "pipe", 5)


def test_files_that_are_too_large_or_missing_and_folders_say_so(tmp_path: Path) -> None:
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="1,099,511,627,776 bytes: must be at most 1,000"):
        read_regular(tmp_path / "holes", 1000)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "missing", 5)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path, 5)


def test_a_full_disk_may_pass_and_a_wrong_place_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(number: int) -> None:
        def fsync(_file: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("fedotp._files.os.fsync", fsync)
        write_atomically(tmp_path / "file", b"content")

    for number in (errno.ENOSPC, errno.EMFILE, errno.EIO):
        with pytest.raises(TransientError, match="cannot write"):
            fail(number)
    with pytest.raises(FedotpError, match="cannot write") as refused:
        fail(errno.EROFS)
    assert not isinstance(refused.value, TransientError)


def test_a_file_written_in_place_is_no_link_also_where_the_system_cannot_refuse_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            opened_in_place(tmp_path / "link", os.O_WRONLY | os.O_CREAT)
        monkeypatch.setattr("fedotp._files._NOFOLLOW", 0)  # Windows
    assert not (tmp_path / "elsewhere").exists()


def test_the_cache_is_where_the_system_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEDOTP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform == "linux":
        assert cache_folder() == tmp_path / ".cache" / "fedotp"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg" / "fedotp"
    monkeypatch.setenv("FEDOTP_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


# Locks: they end with their holder, and looking at one blocks no other process ------------------------------

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
