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


def _once_damaged(fail: Callable[[Path], object]) -> Callable[[Path], object]:
    """A reader that reads valid input, and does `fail` with any other."""

    def read(folder: Path) -> None:
        path = folder / _FILE
        if not path.is_file() or path.read_bytes() != b"valid":
            fail(folder)

    return read


def _refuse(folder: Path) -> None:
    raise FedotpError("not valid")


def _hang(folder: Path) -> None:
    while True:
        pass


def _connect(folder: Path) -> None:
    with socket.socket() as link:
        link.connect_ex(("127.0.0.1", 9))


SOUND = {"refuses": _refuse, "writes-beside": lambda folder: (folder / "out").write_text("")}
DEFECTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "stumbles": (lambda _: int("no number"), "ValueError"),
    "hangs": (_hang, "computes for more than"),
    "waits": (lambda _: time.sleep(1000), "no end within"),
    "eats-memory": (lambda _: b"x" * (1100 << 20), "MiB of memory"),
    "unpickles": (lambda _: pickle.loads(b"cposix\ngetpid\n)R."), "pickle.find_class"),
    "starts-a-process": (lambda _: subprocess.run(["true"], check=False), "subprocess.Popen"),
    "connects": (_connect, "socket.connect"),
    "writes-elsewhere": (lambda _: Path("..", "elsewhere.txt").write_text(""), "open for writing"),
    "runs-planted-code": (lambda _: exec(compile("intruder = 1", "planted", "exec")), "compile"),
    # As code below Python does: there is no audit event.
    "leaves-a-file": (lambda _: os.close(os.open("intruder-was-here", os.O_CREAT | os.O_WRONLY)), "intruder-was-here"),
    "crashes": (lambda _: os.abort(), "SIGABRT"),
}


def all_readers() -> list[Reader]:
    """Sound and unsound; one refuses what is valid, another what it must not refuse."""

    def make(folder: Path) -> object:
        return (folder / _FILE).write_bytes(b"valid")

    return [
        *(Reader(name, make, _once_damaged(read)) for name, read in SOUND.items()),
        *(Reader(name, make, _once_damaged(fail)) for name, (fail, _) in DEFECTS.items()),
        Reader("refuses-valid-input", make, _refuse),
        Reader("must-not-refuse", make, _once_damaged(_refuse), may_refuse=False),
    ]
