"""A site's connection to the server: Flower's SuperNode, watched and restarted, and a worker that answers its messages.

Flower would start a process for every message, which would load the backbone each time and run the code of the run's
bundle. This worker is persistent and runs only the installed fedotp.
"""

import logging
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
from flwr.app import Context, Error, Message

from fedotp._files import cannot_write
from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.flower._events import record
from fedotp.flower.keys import EXPIRED, REVOKED, SiteKeys
from fedotp.flower.link import _flwr
from fedotp.flower.link._access import UNREGISTERED
from fedotp.flower.link._superlink import free_port

log = logging.getLogger("fedotp.site")

ACTIVATE, HEARTBEAT, PULL = "ActivateNode", "SendNodeHeartbeat", "PullMessages"
"""Names of answered calls that SuperNode's process prints."""

TOO_MUCH = "the server's message is too large"

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 20.0
_UNREACHABLE = 30.0  # seconds without an answer before the server is reported as unreachable
_CHECK = 0.2  # seconds between checks of SuperNode
_SLEPT = 5.0  # seconds between checks above which this process was suspended
_SILENCE = 90.0  # seconds: three of Flower's heartbeats
_PATIENT = 10  # factor of that, when silence can be normal
_HELD = 75.0  # seconds; longer than the server holds a dead connection
_PROGRAM = ("-P", "-m", "fedotp.flower.link._supernode_main")
_NAME = "fedotp client"
_NO_WORK = 0.1  # seconds between the worker's polls of SuperNode
_LAST_OUTPUT = 5.0  # seconds to read the output of an exited SuperNode

_UNREACHED = f"cannot connect; retrying every {_LONGEST_PAUSE:.0f} s"

REFUSED = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by this site's authority (ca.crt), has "
    "expired, or is for another host name",
    UNREGISTERED: "this site's key is not registered at the server: ask the coordinator to sign it, and restart",
    REVOKED: "the coordinator has revoked this site's key: ask why; a new key is made with `fedotp keys request` in an "
    "empty folder",
}
"""Output of SuperNode for permanent errors, and its meaning."""

RETRIED = {
    _flwr.HOLDS_A_CONNECTION: "the server has another connection with this key: an old one of this site, which "
    "expires within a minute, or another site with the same key; retrying",
    EXPIRED: "this site's certificate has expired: send a new request, made with `fedotp keys request`, to the "
    "coordinator; retrying",
    "ConnectError": _UNREACHED,
    "Connection refused": _UNREACHED,
    "does not recognize": "the server was restarted; reconnecting",
    "terminated gracefully": "the server closed the connection: it was restarted, or rejects this site's signature "
    "(check the clocks of both machines); retrying",
}
"""Output of SuperNode for temporary errors, and its meaning."""

TAKEN = "another site is connected with this key: stop it, or make separate keys for each site; retrying"


class AnswerTimer:
    """Seconds since the last answer, excluding those in which this process was suspended."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last = 0.0
        self._answered = True

    def read(self, now: float) -> float:
        """Return the seconds until `now`, on a monotonic clock."""
        self.seconds = 0.0 if self._answered else self.seconds + min(now - self._last, _SLEPT)
        self._last, self._answered = now, False
        return self.seconds

    def reset(self) -> None:
        """Restart the timer after an answer; thread-safe."""
        self._answered = True


class SuperNode:
    """Keeps a SuperNode connected to `server`; without `keys` the connection is neither encrypted nor authenticated.

    It is restarted after `silence` seconds without an answer, but not while a message is in progress: only the same
    SuperNode can deliver the worker's answer.
    """

    def __init__(
        self,
        server: str,
        keys: SiteKeys | None,
        state: Path,
        *,
        silence: float = _SILENCE,
        program: Sequence[str] = _PROGRAM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare, without starting. `program` are Python's options, before SuperNode's own."""
        self.address = f"127.0.0.1:{free_port()}"
        self.secret = secrets.token_bytes(32)
        self.seen: dict[str, float] = {}  # time of the server's last answer, in seconds since 1970
        self._server, self._keys = server, keys
        self._secret_file = state / "flower" / "secret"
        self._silence, self._program, self._clock = silence, program, clock
        self._process: subprocess.Popen[str] | None = None
        self._listeners: list[threading.Thread] = []
        self._output: deque[str] = deque(maxlen=60)
        self._pause = _FIRST_PAUSE
        self._next = 0.0
        self._connected = False
        self._working = False
        self._lost = False
        self._link, self._polls = AnswerTimer(), AnswerTimer()  # any answer; an answer to a request for work
        self._started = 0.0
        self._warned: set[str] = set()  # warnings since the last connection
        self._held_since: float | None = None
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._watcher = threading.Thread(target=self._keep_watching, daemon=True)

    def start(self) -> None:
        """Start SuperNode and watch it from a thread."""
        self._watcher.start()

    def require_accepted(self) -> None:
        """Raise if the server refused SuperNode permanently."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop SuperNode."""
        self._stopping.set()
        self._watcher.join()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Mark that a message is in progress."""
        self._working = True
        try:
            yield
        finally:
            self._link.reset()  # the full timeout remains to deliver the answer
            self._polls.reset()
            self._working = False

    def _keep_watching(self) -> None:
        try:
            while not self._stopping.wait(_CHECK):
                self.watch()
        except Exception as error:
            self._failure = error
        finally:
            self._shut()

    def _shut(self) -> None:
        """End SuperNode before the thread that started it; otherwise the system would kill it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._secret_file.unlink(missing_ok=True)

    def watch(self) -> None:
        """Start SuperNode if it is not running or receives nothing. Raises if it was refused permanently."""
        now = self._clock()
        self._link.read(now)
        self._polls.read(now)
        if self._process is None:
            if now >= self._next:
                self._start()
        elif self._process.poll() is not None:
            self._end(self._process)
            self._explain()
        elif self._is_silent():
            self._process.kill()
            self._end(self._process)
        elif not self._connected and now - self._started > _UNREACHABLE:
            self._warn(_UNREACHED)

    def _is_silent(self) -> bool:
        """True if nothing was received for too long; log it once."""
        if self._working:
            self._polls.reset()  # no work is requested before this message is answered
            if self._link.seconds > self._silence and not self._lost:
                self._lost = True
                log.warning(
                    "no answer from %s for %.0f s; finishing the message in progress", self._server, self._silence
                )
            return False
        if not self._connected:
            return self._link.seconds > _PATIENT * self._silence  # SuperNode retries
        if self._link.seconds > self._silence:
            log.warning("no answer from %s for %.0f s; reconnecting", self._server, self._silence)
            return True
        if self._polls.seconds > _PATIENT * self._silence:  # large messages on a slow link take longer
            log.warning("no request reached %s for %.0f s; reconnecting", self._server, self._polls.seconds)
            return True
        return False

    def _end(self, process: "subprocess.Popen[str]") -> None:
        """Read the last output of an exited SuperNode, and delay the next start."""
        process.wait()
        for listener in self._listeners:
            listener.join(_LAST_OUTPUT)
        self._process = None
        self._wait()

    def _wait(self) -> None:
        """Delay the next start, longer each time."""
        self._next = self._clock() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _start(self) -> None:
        try:
            self._secret_file.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(self._secret_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(self.secret)
        except OSError as error:
            raise cannot_write(self._secret_file, error) from error
        self._output.clear()
        self._connected, self._lost, self._started = False, False, self._clock()
        self._link.reset()
        self._polls.reset()
        try:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, str(os.getpid()), *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C must reach only the site, which finishes its message first
            )
        except OSError as error:  # out of memory or descriptors
            log.warning("cannot start SuperNode: %s; retrying", error.strerror)
            self._wait()
            return
        self._listeners = [
            threading.Thread(target=listen, args=(self._process,), daemon=True)
            for listen in (self._read_answers, self._read_output)
        ]
        for listener in self._listeners:
            listener.start()

    def _options(self) -> list[str]:
        host, _, port = self.address.rpartition(":")
        options = ["--superlink", self._server, "--isolation", "process", "--host", host, "--port", port]
        options += ["--superexec-auth-secret-file", str(self._secret_file)]
        if self._keys is None:
            return [*options, "--insecure"]
        ca, key = str(self._keys.ca), str(self._keys.key)
        return [*options, "--root-certificates", ca, "--auth-supernode-private-key", key]

    def _read_answers(self, process: "subprocess.Popen[str]") -> None:
        """Read the names of answered calls."""
        assert process.stdout is not None
        with process.stdout as answers:
            for line in answers:
                self._count(line.strip())

    def _count(self, call: str) -> None:
        self._link.reset()
        self.seen[self._server] = time.time()
        if call != HEARTBEAT:
            self._polls.reset()
        if self._lost:
            self._lost = False
            log.info("connection to %s restored", self._server)
        if call == ACTIVATE:
            self._connected, self._held_since = True, None
            self._warned.clear()
            log.info("connected to %s", self._server)
            record("key-accepted", server=self._server)
        elif call == PULL:
            self._pause = _FIRST_PAUSE

    def _read_output(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._output.append(one_line(line))
                log.debug("SuperNode: %s", one_line(line))
                if TOO_MUCH in line:
                    log.error("%s: %s; ignoring it", self._server, TOO_MUCH)

    def _explain(self) -> None:
        """Log why SuperNode exited; raise if it was refused."""
        output = "\n".join(self._output)
        for sign, meaning in REFUSED.items():
            if sign in output:
                record("key-refused", server=self._server, reason=meaning)
                raise FedotpError(f"{self._server}: {meaning}")
        why = next((meaning for sign, meaning in RETRIED.items() if sign in output), "connection lost; retrying")
        if _flwr.HOLDS_A_CONNECTION in output:
            now = self._clock()
            self._held_since = now if self._held_since is None else self._held_since
            why = TAKEN if now - self._held_since > _HELD else why
        self._warn(why)

    def _warn(self, why: str) -> None:
        """Log a warning, once per connection: after a run the server may be down for months."""
        if why not in self._warned:
            self._warned.add(why)
            log.warning("%s: %s", self._server, why)


class Executor:
    """A worker for the SuperNode at `address`, whose Runtime API requires `secret`."""

    def __init__(self, address: str, secret: bytes, app: Callable[[Message, Context], Message]) -> None:
        self._address = address
        self._app = app
        self._client = _flwr.runtime_client(address, _NAME, secret=secret)

    def step(self) -> bool:
        """Execute a task if one is pending; return True if so."""
        try:
            token = _flwr.acquire_task(self._client, _flwr.TaskType.CLIENT_APP)
        except httpx.HTTPError as error:  # the SuperNode is starting or has exited
            log.debug("cannot acquire a task from SuperNode: %s", error)
            time.sleep(_NO_WORK)
            return False
        if not token:
            time.sleep(_NO_WORK)
            return False
        try:
            self._work(token)
        except _flwr.FAILURES as error:
            log.warning("SuperNode did not accept an answer (%s); the server will retry", type(error).__name__)
        except Exception:  # an invalid message must not end the site
            log.exception("cannot receive or answer a message")
        return True

    def _work(self, token: str) -> None:
        client = _flwr.runtime_client(self._address, _NAME, token=token)
        heartbeat = _flwr.HeartbeatSender(partial(_send_heartbeat, client))
        heartbeat.start()
        try:
            message, context, _, _ = _flwr.pull_task_input(client)
            status, details = _flwr.SubStatus.COMPLETED, ""
            try:
                reply = self._app(message, context)
            except Exception as error:  # the server receives any error, and the site continues
                log.exception("cannot process a message")
                status, details = _flwr.SubStatus.FAILED, f"{type(error).__name__}; see the site's log"
                reply = Message(Error(_flwr.ErrorCode.CLIENT_APP_RAISED_EXCEPTION, details), reply_to=message)
            _flwr.push_message(client, reply, context)
            _flwr.push_task_output(client, context, status, details)
        finally:
            heartbeat.stop()
            client.close()


def _send_heartbeat(client: _flwr.RuntimeHttpClient) -> bool:
    """Report to SuperNode that its message is in progress; return False to retry soon.

    A restarted SuperNode does not know the message, and answers with an error, which is ignored.
    """
    try:
        _flwr.send_heartbeat(client)
    except httpx.TransportError:
        return False
    except httpx.HTTPError as error:
        log.debug("SuperNode does not know the message in progress: %s", error)
    return True
