"""A simulated run as another system would do it: `python other_system.py windows|macos RUN INPUTS`.

Python, torch and the other libraries are loaded first, as what they are here. Then everything that the other system's
Python does not have is taken away, and fedotp is imported anew.
"""

import contextlib
import importlib
import io
import os
import pkgutil
import signal
import sys
from pathlib import Path

import fedotp

NOT_ON_WINDOWS = {
    os: """
        O_CLOEXEC O_DIRECTORY O_DSYNC O_NDELAY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC chown confstr ctermid fchdir
        fchmod fchown fork forkpty fstatvfs getegid geteuid getgid getgroups getloadavg getpgid getpgrp getpriority
        getsid getuid initgroups killpg lchown lockf mkfifo mknod nice openpty posix_fadvise posix_fallocate
        posix_spawn pread preadv pwrite pwritev sched_getaffinity sched_setaffinity sched_yield sendfile setegid
        seteuid setgid setpgid setsid setuid statvfs sync sysconf tcgetpgrp ttyname wait3 wait4 waitid
    """,
    signal: """
        SIGALRM SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGXCPU SIGXFSZ
        alarm getitimer pause pthread_kill pthread_sigmask setitimer sigpending sigtimedwait sigwait
    """,
}
NO_MODULES = {
    "windows": ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "triton", "tty"),
    "macos": ("triton",),
}
EXTRAS = ("datasets", "flwr", "httpx", "matplotlib", "resource", "sklearn", "starlette", "triton", "uvicorn")


def import_all() -> list[str]:
    """Import every module of fedotp; return those that need an extra, or, on Windows, the modules of real sites."""
    left_out = []
    for module in pkgutil.walk_packages(fedotp.__path__, "fedotp."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in EXTRAS:
                raise
            left_out.append(module.name)
    return left_out


def become(system: str) -> None:
    """Take away what `system` does not have, and forget fedotp."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "fedotp"]:
        del sys.modules[name]
    for name in NO_MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment]
    if system == "windows":
        sys.platform = "win32"
        for module, names in NOT_ON_WINDOWS.items():
            for name in names.split():
                if hasattr(module, name):
                    delattr(module, name)
    else:
        sys.platform = "darwin"
        del os.sched_getaffinity, os.posix_fadvise, os.posix_fallocate
        known = os.sysconf

        def sysconf(name: str) -> int:
            if name == "SC_AVPHYS_PAGES":
                raise ValueError("unrecognized configuration name")
            return known(name)

        os.sysconf = sysconf
        sys.addaudithook(_without_proc)


def _without_proc(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(arguments[0])


def simulate(path: Path, inputs: Path) -> None:
    """Run one round, refuse what must be refused, resume, evaluate."""
    from toy_run import make_config

    from fedotp.errors import FedotpError
    from fedotp.federation import RoundReport
    from fedotp.runs.watch import Observer

    fedotp = importlib.import_module("fedotp")

    class KilledError(Exception):
        pass

    class Deadly(Observer):
        def on_round(self, report: RoundReport) -> None:
            if report.round == 2:
                raise KilledError

    with contextlib.suppress(KilledError):
        fedotp.run(make_config(inputs), path, observer=Deadly())
    stopped = fedotp.RunDirectory.open(path)
    assert not stopped.is_running
    with stopped.locked():
        assert stopped.is_running
        with contextlib.suppress(FedotpError):
            fedotp.resume(path)
            raise AssertionError("resumed twice at a time")
    lock = path / "state" / "lock"
    lock.unlink()
    lock.symlink_to(path / "elsewhere")
    with contextlib.suppress(FedotpError):
        fedotp.resume(path)
        raise AssertionError("written through a link")
    lock.unlink()
    assert fedotp.resume(path).is_complete
    fedotp.evaluate_run(path)


def command(*words: str) -> tuple[int, str]:
    """The exit status of `fedotp ...`, and what it says on standard error."""
    from fedotp.cli import main

    sys.argv = ["fedotp", *words]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0), said.getvalue()
    return 0, said.getvalue()


if __name__ == "__main__":
    system, path, inputs = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    before = import_all()
    importlib.import_module("filelock")  # which fedotp locks by on Windows, and which is itself here
    become(system)
    simulate(path, inputs)
    print(*(set(import_all()) - set(before)))
    for words in (["server"], ["client"], ["keys", "show", str(path)]):
        print(*command(*words), end="")
