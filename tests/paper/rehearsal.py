"""A rehearsal of `fedotp paper run` from nothing: a hub, a machine without weights and data, a finished table.

The hub is a server on this machine that speaks as Hugging Face's does, with random weights of RN50 and ViT-B/16 in
the format of the published files; images are noise in the data sets' layouts. What is random has other checksums than
what is published, and that is all that is changed in fedotp. In full size, a few minutes on two cores:

    PYTHONPATH=tests:tests/data python tests/paper/rehearsal.py FOLDER
"""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from safetensors.torch import save_file

from data.layouts import domain_tree, oxford_pets
from fedotp.clip import CLIP, CONFIGS, ClipConfig, VitConfig
from fedotp.clip._config import ResNetConfig
from fedotp.clip._hub import PUBLISHED
from fedotp.data._domains import OFFICE
from fedotp.data._names import OFFICE_CALTECH10

FILE = "open_clip_model.safetensors"
NAMES = ("RN50", "ViT-B/16")
# In the other process: the checksums of the random weights, and their shapes where they are smaller than the real ones.
COMMAND = """
import json, os
from fedotp.clip import ClipConfig, _hub, _load
for name, sha256 in json.loads(os.environ["REHEARSED"]).items():
    _hub.PUBLISHED[name] = _hub.PUBLISHED[name]._replace(sha256=sha256)
_load.CONFIGS = {name: ClipConfig.from_json(shape) for name, shape in json.loads(os.environ["SHAPES"]).items()}
from fedotp.cli import main
main()
"""


def small(config: ClipConfig) -> ClipConfig:
    """The same kind of towers, but small: heads are 64 wide, so that shapes alone tell the architecture."""
    vision = (
        VitConfig(image_size=32, patch_size=16, width=64, layers=1, heads=1)
        if isinstance(config.vision, VitConfig)
        else ResNetConfig(image_size=32, layers=(1, 1, 1, 1), width=2, heads=1)
    )
    return ClipConfig(32, vision, replace(config.text, width=64, layers=1, heads=1))


def write_weights(folder: Path, shapes: Mapping[str, ClipConfig]) -> dict[str, str]:
    """Lay random weights out as the hub addresses them; return their checksums."""
    found = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        path = folder / PUBLISHED[name].repository / "resolve" / PUBLISHED[name].revision / FILE
        path.parent.mkdir(parents=True)
        tensors = CLIP.random(shape, seed=seed).state_dict()
        save_file({key: value.half() if value.is_floating_point() else value for key, value in tensors.items()}, path)
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@contextmanager
def hub(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve `folder` as the hub serves its files; the address, and what was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_content=False)

        def do_GET(self) -> None:
            self._answer(with_content=True)

        def _answer(self, *, with_content: bool) -> None:
            asked.append(f"{self.command} {self.path}")
            path = folder / self.path.lstrip("/")
            content = path.read_bytes() if path.is_file() else b""
            self.send_response(200 if content else 404)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", path.parent.name)
            self.end_headers()
            if with_content:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Machine:
    """Another process whose home is `folder` and whose hub is at `address`."""

    folder: Path
    address: str
    sha256: Mapping[str, str]
    shapes: Mapping[str, ClipConfig]

    def fedotp(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command there."""
        environment = os.environ | {
            "HF_ENDPOINT": self.address,
            "HF_HOME": str(self.folder / "hf"),
            "HF_HUB_DISABLE_XET": "1",
            "FEDOTP_CACHE": str(self.folder / "cache"),
            "COLUMNS": "140",
            "REHEARSED": json.dumps(dict(self.sha256)),
            "SHAPES": json.dumps({name: shape.to_json() for name, shape in self.shapes.items()}),
        }
        command = [sys.executable, "-c", COMMAND, *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=self.folder, timeout=3600
        )


def write_data(root: Path) -> None:
    """Pets in the official layout, Office-Caltech10 in FedBN's; few images each."""
    oxford_pets(root)
    domain_tree(root / "office_caltech_10", OFFICE, OFFICE_CALTECH10, 2)


ENTRIES = {  # what is rehearsed of the paper, and what the few images make necessary
    "table1": ("--only", "OxfordPets", "--set", "partition.n_clients=3", "--set", "partition.shots=2"),
    "tableA3": ("--only", "fedotp,promptfl,zeroshot"),
}
SHORT = ("--set", "federation.rounds=1", "--set", "federation.local_epochs=1", "--set", "compute.device=cpu")


@contextmanager
def machine(folder: Path, shapes: Mapping[str, ClipConfig]) -> Iterator[tuple[Machine, list[str]]]:
    """A machine with nothing on it, its hub, and what the hub was asked for."""
    sha256 = write_weights(folder / "hub", shapes)
    home = folder / "home"
    home.mkdir()
    with hub(folder / "hub") as (address, asked):
        yield Machine(home, address, sha256, shapes), asked


def main() -> None:
    """The whole rehearsal in full size; what is printed is what a user would see."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    torch.set_grad_enabled(False)
    with machine(folder, {name: CONFIGS[name] for name in NAMES}) as (there, _):
        root = there.folder / "data"

        def show(*words: object) -> None:
            print("$ fedotp", *words, flush=True)
            done = there.fedotp(*words)
            print(done.stdout, done.stderr, f"[exit status {done.returncode}]", sep="", flush=True)

        for entry, options in ENTRIES.items():
            show("paper", "run", entry, *options, *SHORT, "--seeds", "0", "--set", f"data.root={root}")
            if not root.exists():
                write_data(root)
            for name in NAMES:
                show("weights", "fetch", name)
            show("paper", "run", entry, *options, *SHORT, "--seeds", "0", "--set", f"data.root={root}")


if __name__ == "__main__":
    main()
