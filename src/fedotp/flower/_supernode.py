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
from fedotp.flower._keys import SiteKeys
from fedotp.flower._superlink import free_port

log = logging.getLogger("fedotp.site")

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG

REFUSED = (
    ("CERTIFICATE_VERIFY_FAILED", "the server's certificate was not made by the authority of these keys (ca.crt)"),
    ("Public key not registered", "the server does not know this site's key; have it registered"),
    ("NODE_NOT_FOUND", "the server does not know this site's key; have it registered"),
)
"""What SuperNode says where trying again would not help, and what it means."""


def quiet_flower(home: Path) -> None:
    """No telemetry, no search for updates, nothing installed at launch, and Flower's own files below `home`."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ.get("FEDOTP_FLOWER_TELEMETRY", "0")
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    os.environ["FLWR_HOME"] = str(home)


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

    def watch(self) -> None:
        """Start SuperNode if it does not run. Raises where it was refused for good."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self._process = None
            self._complain()
            self._next = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        if time.monotonic() >= self._next:
            self._start()

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
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=_die_with_parent
        )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said.append(line.rstrip())
            log.debug("SuperNode: %s", line.rstrip())
            if "SuperNode ID" in line:
                self._pause = _FIRST_PAUSE
                log.info("connected to %s", self._server)

    def _complain(self) -> None:
        """Say why SuperNode has ended; raise if it was refused."""
        said = "\n".join(self._said)
        for sign, meaning in REFUSED:
            if sign.lower() in said.lower():
                raise FedotpError(f"{self._server}: {meaning}")
        lines = [line for line in self._said if line.strip()]
        log.warning("the connection to %s is lost (%s); trying again", self._server, lines[-1] if lines else "no word")


def _die_with_parent() -> None:
    """A site that is killed must not leave its SuperNode behind, connected and deaf."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
