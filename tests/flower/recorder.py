"""A man in the middle who holds the server's key: hears every byte between sites and server, in clear."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fedotp.flower.keys import ServerKeys


class Recorder:
    """Relays connections to `port` and keeps all that was said."""

    def __init__(self, keys: ServerKeys, port: int) -> None:
        self._inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._inward.load_cert_chain(keys.certificate, keys.key)
        self._outward = ssl.create_default_context(cafile=keys.ca)
        self._target = port
        self._parts: list[bytearray] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def heard(self) -> list[bytes]:
        """What was said, one text per connection and direction."""
        return [bytes(part) for part in self._parts]

    def start(self) -> None:
        up = threading.Event()

        async def listen() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._inward)
            self.port = self._server.sockets[0].getsockname()[1]
            up.set()

        def run() -> None:
            self._loop.run_until_complete(listen())
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
            self._loop.close()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert up.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        """Close everything that is still open."""
        assert self._server is not None
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.1)

    async def _serve(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        try:
            far_in, far_out = await asyncio.open_connection(
                "127.0.0.1", self._target, ssl=self._outward, server_hostname="localhost"
            )
        except OSError:  # the server is not there
            near_out.close()
            return
        self._writers += [near_out, far_out]
        await asyncio.gather(self._relay(near_in, far_out), self._relay(far_in, near_out))

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        part = bytearray()
        self._parts.append(part)
        with suppress(OSError):
            while said := await source.read(65536):
                part += said
                sink.write(said)
                await sink.drain()
        sink.close()


@contextmanager
def recording(keys: ServerKeys, port: int) -> Iterator[Recorder]:
    recorder = Recorder(keys, port)
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.stop()
