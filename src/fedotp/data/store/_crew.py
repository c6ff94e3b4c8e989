"""Decoding processes at work side by side: each is handed images, and asked for what it found, by a thread."""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fedotp.data.store._crops import Looked, Request, Rows, look
from fedotp.data.store._process import DecodingProcess, GoneError


class Crew:
    """`n` decoding processes. Crops go to `memory`, a descriptor that all of them share, row by row."""

    def __init__(self, memory: int, n: int) -> None:
        """Start them."""
        self._rows = Rows(memory)
        self._processes = [DecodingProcess(memory) for _ in range(n)]
        self._idle: queue.SimpleQueue[DecodingProcess] = queue.SimpleQueue()
        for process in self._processes:
            process.start()
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(n)

    def submit(self, requests: Sequence[Request], most_at_a_time: int) -> Callable[[], list[Looked]]:
        """Look at images in the background; the answer waits for what is found, in the same order.

        A process is handed `most_at_a_time` images together, or fewer, so that all have something to do.
        """
        step = max(1, min(-(-len(requests) // len(self._processes)), most_at_a_time))
        parts = [self._threads.submit(self._look, requests[i : i + step]) for i in range(0, len(requests), step)]
        return lambda: [looked for part in parts for looked in part.result()]

    def close(self) -> None:
        """End all of them; images that nobody has looked at yet are forgotten."""
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.stop()

    def _look(self, requests: Sequence[Request]) -> list[Looked]:
        process = self._idle.get()
        try:
            return process.ask(requests)
        except GoneError:  # one after the other, to see which of them it was
            return [self._ask_again(process, request) for request in requests]
        finally:
            self._idle.put(process)

    def _ask_again(self, process: DecodingProcess, request: Request) -> Looked:
        try:
            return process.ask([request])[0]
        except GoneError as gone:
            if gone.at_work:
                return Looked(request.digest, f"decoding it ended its process ({gone})")
            return look(request, self._rows)
