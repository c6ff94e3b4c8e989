"""Flower's SuperNode beside the site's worker: started, watched, and started again."""

import ctypes
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from fedotp._files import cannot_write
from fedotp.errors import FedotpError
from fedotp.flower._gate import UNREGISTERED
from fedotp.flower._keys import SiteKeys
from fedotp.flower._superlink import free_port

log = logging.getLogger("fedotp.site")

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0
_REMIND = 30.0
_LAST_WORDS = 5.0  # seconds between SuperNode's last error and the end of its process
_BROKEN = ("Traceback (most recent call last)", "Exit Code:")
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

REFUSED = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate was not made by the authority of these keys (ca.crt), "
    "has expired, or is for another name",
    UNREGISTERED: "the server does not know this site's key: have it registered there, and start again",
}
"""What SuperNode says where trying again would not help, and what it means."""

RETRIED = {
    "code: 2004": "the server still holds this site's last connection, for a minute at most",
    "ConnectError": "nobody answers there",
    "Connection refused": "nobody answers there",
    "does not recognize": "the server was restarted",
    "terminated gracefully": "the server ended the connection: it was restarted, or does not accept this site's "
    "signature (is the clock right, here and there?)",
}
"""What SuperNode says where it will work by and by."""


def quiet_flower(home: Path) -> None:
    """No search for updates, nothing installed at launch, and Flower's own files below `home`."""
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    os.environ["FLWR_HOME"] = str(home)
    for name in ("NO_PROXY", "no_proxy"):  # SuperNode and its worker talk to each other on this machine
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))


class SuperNode:
    """Keeps a `flower-supernode` connected to `server`; without `keys` the connection is neither secret nor known."""

    def __init__(self, server: str, keys: SiteKeys | None, state: Path) -> None:
        """Nothing runs yet."""
        self.address = f"127.0.0.1:{free_port()}"
        self.secret = secrets.token_bytes(32)
        self._server, self._keys = server, keys
        self._secret_file = state / "flower" / "secret"
        self._process: subprocess.Popen[str] | None = None
        self._said: deque[str] = deque(maxlen=60)
        self._pause = _FIRST_PAUSE
        self._next = 0.0
        self._broken = 0.0
        self._connected = False
        self._reminded = 0.0

    def watch(self) -> None:
        """Start SuperNode if it does not run. Raises where it was refused for good."""
        if self._process is not None and self._process.poll() is None:
            if self._broken and time.monotonic() - self._broken > _LAST_WORDS:
                self._process.kill()  # its work has ended with an error, but a thread of it stays
                self._process.wait()
            else:
                self._remind()
                return
        if self._process is not None:
            self._process = None
            self._complain()
            self._next = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        if time.monotonic() >= self._next:
            self._start()

    def _remind(self) -> None:
        """Say that nobody answers, now and then."""
        if not self._connected and time.monotonic() - self._reminded > _REMIND:
            self._reminded = time.monotonic()
            log.warning("nobody answers at %s yet; trying on", self._server)

    def stop(self) -> None:
        """Stop SuperNode."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._secret_file.unlink(missing_ok=True)

    def _start(self) -> None:
        try:
            self._secret_file.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(self._secret_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(self.secret)
        except OSError as error:
            raise cannot_write(self._secret_file, error) from error
        host, _, port = self.address.rpartition(":")
        command = [str(Path(sys.executable).with_name("flower-supernode")), "--superlink", self._server]
        command += ["--isolation", "process", "--host", host, "--port", port]
        command += ["--superexec-auth-secret-file", str(self._secret_file)]
        if self._keys is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self._keys.ca)]
            command += ["--auth-supernode-private-key", str(self._keys.key)]
        self._said.clear()
        self._broken, self._connected, self._reminded = 0.0, False, time.monotonic()
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_die_with_parent,
            start_new_session=True,  # Ctrl-C is for the site, which finishes its message first
        )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said.append(line.rstrip())
            log.debug("SuperNode: %s", line.rstrip())
            if any(sign in line for sign in _BROKEN):
                self._broken = self._broken or time.monotonic()
            if "SuperNode ID" in line:
                self._pause, self._connected = _FIRST_PAUSE, True
                log.info("connected to %s", self._server)

    def _complain(self) -> None:
        """Say why SuperNode has ended; raise if it was refused."""
        said = "\n".join(self._said)
        for sign, meaning in REFUSED.items():
            if sign in said:
                raise FedotpError(f"{self._server}: {meaning}")
        why = next((meaning for sign, meaning in RETRIED.items() if sign in said), "the connection was lost")
        log.warning("%s: %s; trying again", self._server, why)


def _die_with_parent() -> None:
    """A site that is killed must not leave its SuperNode behind, connected and deaf."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
