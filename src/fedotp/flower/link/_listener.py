"""Listening sockets with limits, and uvicorn in a thread."""

import errno
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

from fedotp.errors import FedotpError, TransientError
from fedotp.flower.link._access import ConnectionLimits

_PATIENCE = 30.0  # seconds for a listener to start
_LONGEST_HEAD = 16_384  # bytes of a request before its body
_MAY_PASS = {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE}  # e.g. the last process is exiting


class Listener:
    """A socket that listens within limits, and the thread that answers its requests."""

    def __init__(self, limits: ConnectionLimits, host: str, port: int, option: str = "--host or --port") -> None:
        """Open the socket, or raise FedotpError, which names the option of the address."""
        self._limits = limits
        try:
            self._socket = limits.listen(host, port)
        except OSError as error:
            kind = TransientError if error.errno in _MAY_PASS else FedotpError
            raise kind(f"cannot listen at {host}:{port}: {error.strerror}; choose another {option}") from error
        self.port = int(self._socket.getsockname()[1])
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def serve(self, app: Any, **options: Any) -> None:
        """Start to answer requests; `options` are uvicorn's."""
        config = uvicorn.Config(
            app,
            access_log=False,
            proxy_headers=False,  # anybody who comes through a tunnel could choose an address for the log
            log_config=None,
            timeout_graceful_shutdown=2,
            loop="asyncio",  # calls `accept` of the socket, which applies its limits
            http="h11",
            ws="none",
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            **options,
        )
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(target=server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        end = time.monotonic() + _PATIENCE
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise TransientError("cannot listen at {}:{}".format(*self._socket.getsockname()))
            time.sleep(0.05)

    def use_certificate(self, certificate: Path, key: Path) -> None:
        """Present another certificate to new connections over TLS."""
        if self._server is not None and self._server.config.ssl is not None:
            self._server.config.ssl.load_cert_chain(certificate, key)

    def stop(self) -> None:
        """Begin to stop."""
        self._limits.close()
        if self._server is not None:
            self._server.should_exit = True

    def close(self) -> None:
        """Wait until it has stopped, and close the socket."""
        if self._thread is not None:
            self._thread.join(timeout=5)
        self._socket.close()
