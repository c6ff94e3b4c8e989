"""Readers with a defect each, for the test that the harness finds them; and sound ones, in which it finds nothing."""

import os
import pickle
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from fedotp.errors import FedotpError
from fuzz.reader import Reader

_FILE = "input.bin"


def _make(folder: Path) -> None:
    (folder / _FILE).write_bytes(b"valid")


def _once_damaged(fail: Callable[[Path], object]) -> Callable[[Path], object]:
    """A reader that reads valid input, and does `fail` with any other."""

    def read(folder: Path) -> None:
        path = folder / _FILE
        if not path.is_file() or path.read_bytes() != b"valid":
            fail(folder)

    return read


def _refuse(folder: Path) -> None:
    raise FedotpError("not valid")


def _stumble(folder: Path) -> None:
    raise ValueError("not valid")


def _hang(folder: Path) -> None:
    while True:
        pass


def _wait(folder: Path) -> None:
    time.sleep(1000)


def _eat(folder: Path) -> None:
    b"x" * (1100 << 20)


def _unpickle(folder: Path) -> None:
    pickle.loads(b"cposix\ngetpid\n)R.")


def _start_process(folder: Path) -> None:
    subprocess.run(["true"], check=False)


def _connect(folder: Path) -> None:
    with socket.socket() as link:
        link.connect_ex(("127.0.0.1", 9))


def _write_elsewhere(folder: Path) -> None:
    Path("..", "elsewhere.txt").write_text("")


def _run_planted_code(folder: Path) -> None:
    exec(compile("intruder = 1", "planted", "exec"))


def _write_unheard(folder: Path) -> None:
    """As foreign code below Python does: there is no audit event."""
    os.close(os.open("intruder-was-here", os.O_CREAT | os.O_WRONLY))


def _crash(folder: Path) -> None:
    os.abort()


SOUND = {"refuses": _refuse, "writes-beside": lambda folder: (folder / "out").write_text("")}
DEFECTS = {
    "stumbles": (_stumble, "ValueError"),
    "hangs": (_hang, "computes for more than"),
    "waits": (_wait, "no end within"),
    "eats-memory": (_eat, "MiB of memory"),
    "unpickles": (_unpickle, "pickle.find_class"),
    "starts-a-process": (_start_process, "subprocess.Popen"),
    "connects": (_connect, "socket.connect"),
    "writes-elsewhere": (_write_elsewhere, "open for writing"),
    "runs-planted-code": (_run_planted_code, "compile"),
    "leaves-a-file": (_write_unheard, "intruder-was-here"),
    "crashes": (_crash, "SIGABRT"),
}


def all_readers() -> list[Reader]:
    """Sound and unsound; one refuses what is valid, another what it must not refuse."""
    return [
        *(Reader(name, _make, _once_damaged(read)) for name, read in SOUND.items()),
        *(Reader(name, _make, _once_damaged(fail)) for name, (fail, _) in DEFECTS.items()),
        Reader("refuses-valid-input", _make, _refuse),
        Reader("must-not-refuse", _make, _once_damaged(_refuse), may_refuse=False),
    ]
