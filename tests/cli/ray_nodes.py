"""A real Ray cluster on this machine: one `ray start` for each node, at addresses of the loopback."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fedotp

_PATIENCE = 300.0  # seconds; a busy machine takes a minute for what an idle one does in five


class Node:
    """A node with one CPU; its processes are a group of their own."""

    def __init__(self, folder: Path, number: int, *words: str) -> None:
        self.log = folder / f"node-{number}.log"
        command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block"]
        command += ["--num-cpus=1", "--num-gpus=0", f"--node-ip-address=127.0.0.{number}", *words]
        command += ["--min-worker-port=0", "--max-worker-port=0"]  # any that are free: there may be other clusters
        paths = [str(Path(fedotp.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        off = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0", "OMP_NUM_THREADS": "1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                env=os.environ | off | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_up(self) -> None:
        wait_for(lambda: "Ray runtime started" in self.log.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def signal(self, number: int) -> None:
        """To all of its processes: raylet, agents, workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """As a power cut does."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def open_files(self) -> Iterator[Path]:
        """Of all of its processes."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.getpgid(int(process.name)) == self.process.pid:
                    yield from (file.readlink() for file in (process / "fd").iterdir())


@contextmanager
def two_nodes() -> Iterator[tuple[str, Node, Node]]:
    """The address of a cluster, its head and its other node; all is gone afterwards, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # sockets have short names
    nodes: list[Node] = []
    try:
        own = (f"--ray-client-server-port={free_port()}", f"--temp-dir={folder}", "--include-dashboard=false")
        nodes.append(Node(folder, 2, "--head", "--port=0", *own))
        nodes[0].wait_until_up()
        address = (folder / "ray_current_cluster").read_text().strip()
        nodes.append(Node(folder, 3, f"--address={address}"))
        nodes[1].wait_until_up()
        yield address, nodes[0], nodes[1]
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """One that is free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], object]) -> None:
    """Until it holds; what takes longer than a busy machine would need never will."""
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
