"""The process that reads, and how it is noticed that a reader does what it must not.

It works line by line: one order a line comes in, one answer a line goes out. `fuzz.campaign` watches over it.

{"warm": READER}                        make the valid files, if they are not there, and read them
{"reader": READER, "case": N}           mutate and read
"""

import argparse
import faulthandler
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedotp.errors import FedotpError
from fuzz.mutations import mutate
from fuzz.reader import Reader, inputs_of

_GIB = 1 << 30
MOST_RESIDENT = _GIB  # bytes a case may add to what is resident
_MOST_ADDRESSES = 4 * _GIB  # and to the address space
_MOST_WRITTEN = 256 << 20  # bytes of one file
_MARK = "intruder"  # in everything that the mutations plant

_PROCESSES = {"os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"}
_SOCKETS = {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "urllib.Request"}
_LIBRARIES = {"ctypes.dlopen"}
_OWN_LIBRARIES = [("ctypes.dlopen", (None,)), ("ctypes.dlopen", ("libcuda.so.1",))]  # this very process, a GPU's driver
_FOLLOWING = {"os.chmod", "os.chown", "os.truncate"}
_NOT_FOLLOWING = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "shutil.rmtree"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

CASE = "case"  # the folder of the case at hand, below the worker's own
_LAST_LINES = 12
_TRIES = 20  # a mutation may change nothing


class Guard:
    """Notes what the code of one process does while it is `watching`."""

    def __init__(self, elsewhere: Path) -> None:
        """`elsewhere` is the working directory, in which nothing may appear."""
        self.elsewhere = elsewhere
        self.noted: list[str] = []
        self._watching = False
        self._allowed: tuple[str, ...] = ()
        os.chdir(elsewhere)
        sys.addaudithook(self._hear)

    @contextmanager
    def watching(self, allowed: Sequence[Path]) -> Iterator[None]:
        """Note what happens within; files may be written below `allowed`."""
        self.noted = []
        self._allowed = (*(f"{os.path.realpath(path)}/" for path in allowed), "/dev/null", "/dev/tty")
        before = _status("VmRSS")
        _limit_addresses()
        _forget_peak()
        self._watching = True
        try:
            yield
        finally:
            self._watching = False
            used = _status("VmHWM") - before
            if used > MOST_RESIDENT:
                self.noted.append(f"it took {used >> 20} MiB of memory")
            for path in sorted(self.elsewhere.iterdir()):
                self.noted.append(f"it wrote {path.name} into the working directory")
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._watching:
            return
        if event in _PROCESSES | _SOCKETS | _LIBRARIES or event == "pickle.find_class":
            # A run writes down which commit it was made with.
            if args[:1] != ("git",) and (event, args) not in _OWN_LIBRARIES:
                self._note(event, args)
        elif event == "open":
            path, mode, flags = args
            if _writes(mode, flags) and not self._is_allowed(path, follows=not flags & os.O_NOFOLLOW):
                self._note("open for writing", args)
        elif event in _FOLLOWING | _NOT_FOLLOWING:
            paths = [arg for arg in args[:2] if isinstance(arg, str | bytes | os.PathLike)]
            if event in ("os.remove", "os.rmdir") and args[1] != -1:  # relative to an open folder
                paths = [os.path.join(os.readlink(f"/proc/self/fd/{args[1]}"), os.fsdecode(args[0]))]
            if not all(self._is_allowed(path, follows=event in _FOLLOWING) for path in paths):
                self._note(event, args)
        elif event in ("compile", "exec", "import") and _MARK in _words(args[:2]):
            self._note(event, args)

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        self._watching = False  # what follows from it is no news
        self.noted.append(f"{event} {_words(args)[:200]}")

    def _is_allowed(self, path: Any, *, follows: bool) -> bool:
        """Whether what lies at `path`, or what a link there leads to, may be written."""
        if isinstance(path, int):  # a descriptor, opened before
            return True
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        real = os.path.join(os.path.realpath(folder), name)
        real = os.path.realpath(real) if follows else real
        return f"{real}/".startswith(self._allowed) or real in self._allowed


def limit_process() -> None:
    """What holds for a whole worker: no core dumps, no large files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _limit_addresses() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + _MOST_ADDRESSES, hard))


def _forget_peak() -> None:
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _status(key: str) -> int:
    """Bytes that the system counts for this process."""
    with open("/proc/self/status") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith(f"{key}:")), 0)


def _writes(mode: str | None, flags: int) -> bool:
    return any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & _WRITING)


def _words(args: Sequence[object]) -> str:
    return " ".join(str(getattr(arg, "co_filename", arg))[:1000] for arg in args)


def make_case(reader: Reader, seed_folder: Path, folder: Path, key: str) -> None:
    """The valid files of `reader` in `folder`, one of them mutated; the same for the same `key`."""
    rng = random.Random(key)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(seed_folder, folder, symlinks=True)
    path = rng.choice(reader.mutable(folder))
    what = rng.random()
    if reader.misplaced and what < 0.03:
        _misplace(path, folder, rng.choice(reader.misplaced))
        return
    valid = path.read_bytes()
    changed = (mutate(valid, rng) for _ in range(_TRIES))
    path.write_bytes(next((content for content in changed if content != valid), b""))
    if reader.seal is not None and what < 0.7:
        reader.seal(folder)


def _misplace(path: Path, folder: Path, kind: str) -> None:
    """Put something else in the place of a file: a pipe without a writer, a link to itself, to an endless device.

    A link to a file outside may be read, but what it leads to may not be written.
    """
    outside = folder.parent / "outside"
    shutil.move(path, outside)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "nothing":
        path.symlink_to({"loop": path.name, "nowhere": "intruder", "endless": "/dev/zero", "outside": outside}[kind])


def read(reader: Reader, folder: Path, guard: Guard, inputs: Path) -> dict[str, Any]:
    """What comes of reading: "read", "refused" or "finding", and why."""
    outcome, why = "read", ""
    with guard.watching((folder, inputs)):
        try:
            reader.read(folder)
        except FedotpError as error:
            outcome, why = ("refused" if reader.may_refuse else "finding"), f"refused: {error}"
        except BaseException as error:  # Rust's panics are no Exception
            lines = traceback.format_exception(error)
            outcome, why = "finding", f"{type(error).__name__}: {error}\n{''.join(lines[-_LAST_LINES:])}"
    if guard.noted:
        outcome, why = "finding", "; ".join(guard.noted) + "\n" + why
    return {"outcome": outcome, "why": why[:20_000]}


def main() -> None:
    """Take orders until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", default="fuzz.readers", help="the module that has them")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    _silence(options.scratch)
    limit_process()
    elsewhere = options.scratch / "elsewhere"
    elsewhere.mkdir(parents=True, exist_ok=True)
    case = options.scratch / CASE
    guard = Guard(elsewhere)
    os.environ["TMPDIR"] = str(case)
    os.environ["FEDOTP_CACHE"] = str(case / "cache")
    readers = {reader.name: reader for reader in importlib.import_module(options.readers).all_readers()}
    (options.scratch / "inputs").unlink(missing_ok=True)
    (options.scratch / "inputs").symlink_to(options.seeds / "inputs")
    for line in sys.stdin:
        order = json.loads(line)
        reader = readers[order.get("reader") or order["warm"]]
        seed_folder = options.seeds / reader.name
        inputs = inputs_of(seed_folder)
        if "warm" in order:
            answer = _warm(reader, seed_folder, case)
        else:
            make_case(reader, seed_folder, case, f"{options.seed}/{reader.name}/{order['case']}")
            answer = read(reader, case, guard, inputs)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _warm(reader: Reader, seed_folder: Path, folder: Path) -> dict[str, Any]:
    """Read the valid files, which must be valid: a reader that refuses everything proves nothing."""
    try:
        if not seed_folder.is_dir():
            seed_folder.mkdir(parents=True)
            reader.make(seed_folder)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seed_folder, folder, symlinks=True)
        reader.read(folder)
    except BaseException:
        return {"outcome": "finding", "why": f"valid files are refused\n{traceback.format_exc()}"}
    return {"outcome": "read", "why": ""}


def _silence(scratch: Path) -> None:
    """What readers print, and what a crash leaves, goes to a file."""
    log = os.open(scratch / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()


if __name__ == "__main__":
    main()
