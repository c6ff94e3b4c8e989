"""Flower's SuperNode as a site runs it: `python -m fedotp.flower.link._supernode_main PARENT OPTIONS...`.

It prints the calls that the server has answered, retries while the connection is down, limits the bytes it accepts from
the server, and exits when its parent or one of its threads exits.
"""

import os
import resource
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import httpx

from fedotp._system import die_with_parent
from fedotp.flower.link import _flwr
from fedotp.flower.link._supernode import PULL, TOO_MUCH

MOST_BYTES = 256 << 20
"""Limit of a message; prompts take some kilobytes."""

_ADDRESS_SPACE = 8 << 30  # bytes, so that a hostile server can crash this process, but not the machine
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class TooMuchError(RuntimeError):
    """Raised for an answer or a message beyond the limits; it is not retried."""


class FleetClient(_flwr.FleetHttpClient):
    """SuperNode's connection to the server: it prints every answered call and limits the size of answers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Configure Flower's client without redirects and decompression."""
        super().__init__(*arguments, **options)
        self._client.follow_redirects = False
        self._client.headers["accept-encoding"] = "identity"
        self._client.event_hooks = {"response": [self._bound]}
        self._taken = 0
        self._taking = threading.Lock()

    def _send(self, context: _flwr.ProtobufRequestContext, *, stream: bool = False) -> httpx.Response:
        call = context.rpc_method.rpartition("/")[2]
        if call == PULL:
            self._taken = 0
        response = super()._send(context, stream=stream)
        if response.is_success:
            os.write(sys.stdout.fileno(), f"{call}\n".encode())
        return response

    def _bound(self, response: httpx.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise TooMuchError("the server sent a compressed answer, which was not requested")
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Bounded(response.stream, self._take)

    def _take(self, n_bytes: int) -> None:
        """Count the bytes since the last message was requested, from any thread."""
        with self._taking:
            self._taken += n_bytes
        if self._taken > MOST_BYTES:
            raise TooMuchError(f"{TOO_MUCH}: must be at most {MOST_BYTES >> 20} MiB")


class _Bounded(httpx.SyncByteStream):
    """A body whose bytes are counted on arrival."""

    def __init__(self, stream: httpx.SyncByteStream, take: Any) -> None:
        self._stream, self._take = stream, take

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            self._take(len(part))
            yield part

    def close(self) -> None:
        self._stream.close()


def patient_invoker() -> _flwr.RetryInvoker:
    """Make Flower's invoker also retry after a TLS handshake without answer, which Flower treats as a refusal."""
    invoker = _flwr.make_simple_http_retry_invoker()
    gives_up = invoker.should_giveup
    assert gives_up is not None

    def is_final(error: Exception) -> bool:
        if isinstance(error, httpx.TransportError) and _UNTRUSTED not in str(error):
            return False
        return gives_up(error)

    invoker.should_giveup = is_final
    return invoker


def main() -> None:
    """Run SuperNode for the site whose process is PARENT."""
    die_with_parent()  # otherwise the SuperNode of a killed site would stay connected
    if os.getppid() != int(sys.argv.pop(1)):
        sys.exit(1)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (min(_ADDRESS_SPACE, most) if most > 0 else _ADDRESS_SPACE, most))
    threading.excepthook = _end_with_thread
    try:
        _flwr.run_supernode(FleetClient, patient_invoker)
    except Exception:
        traceback.print_exc()
    finally:  # otherwise its Runtime API would continue in another thread, without a connection to the server
        os._exit(1)


def _end_with_thread(what: threading.ExceptHookArgs) -> None:
    """End the process: SuperNode does not restart a failed thread, such as the heartbeat's."""
    threading.__excepthook__(what)
    os._exit(1)


if __name__ == "__main__":
    main()
