"""A link that can go dead without being cut: connections stay, or are accepted, and no byte comes through."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

_BLOCK = 65536


class StallingProxy:
    """Passes bytes between its own `port` and another one of this machine while `flows` is set."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.flows = threading.Event()
        self.flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.flows.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self.flows.wait()
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._target)) as far:
            back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
            back.start()
            self._pass(near, far)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while block := source.recv(_BLOCK):
                self.flows.wait()
                sink.sendall(block)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def stalling_proxy(target: int) -> Iterator[StallingProxy]:
    with closing(StallingProxy(target)) as proxy:
        yield proxy
