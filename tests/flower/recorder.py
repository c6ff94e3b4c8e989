"""A man in the middle who holds the server's key: hears every byte between sites and server, in clear."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fedotp.flower.keys import ServerKeys


class Recorder:
    """Relays connections to `port` of this machine and keeps all that was said."""

    def __init__(self, keys: ServerKeys, port: int) -> None:
        self.outward, self.target = ssl.create_default_context(cafile=keys.ca), port
        self.port = 0
        self._parts: list[bytearray] = []
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def heard(self) -> list[bytes]:
        """What was said, one text per connection and direction."""
        return [bytes(part) for part in self._parts]

    async def serve(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        """Relay a connection."""
        try:
            far_in, far_out = await asyncio.open_connection(
                "127.0.0.1", self.target, ssl=self.outward, server_hostname="localhost"
            )
        except OSError:  # the server is not there
            near_out.close()
            return
        self._writers += [near_out, far_out]
        await asyncio.gather(self._relay(near_in, far_out), self._relay(far_in, near_out))

    async def end(self, server: asyncio.Server) -> None:
        """Close everything that is still open."""
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.1)

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
    inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inward.load_cert_chain(keys.certificate, keys.key)
    recorder, loop = Recorder(keys, port), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    begin = asyncio.start_server(recorder.serve, "127.0.0.1", 0, ssl=inward)
    server = asyncio.run_coroutine_threadsafe(begin, loop).result(10)
    recorder.port = server.sockets[0].getsockname()[1]
    try:
        yield recorder
    finally:
        asyncio.run_coroutine_threadsafe(recorder.end(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
