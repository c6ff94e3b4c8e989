"""What a reader may not do, and how it is noticed: an audit hook, limits, and a folder that must stay empty."""

import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
            if not all(self._is_allowed(path, follows=event in _FOLLOWING) for path in paths):
                self._note(event, args)
        elif event in ("compile", "exec", "import") and _MARK in _shown(args[:2]):
            self._note(event, args)

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        self._watching = False  # what follows from it is not noted
        self.noted.append(f"{event} {_shown(args)[:200]}")

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


def _shown(args: Sequence[object]) -> str:
    return " ".join(str(getattr(arg, "co_filename", arg))[:1000] for arg in args)
