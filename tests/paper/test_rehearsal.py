"""A rehearsal of `fedotp paper run` from nothing: a hub, a machine without weights and data, a finished table.

The hub is a server on this machine that speaks as Hugging Face's does, with small random weights in the format of the
published files; images are noise in the layout of OxfordPets. Only the checksums and shapes are changed in fedotp.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from safetensors.torch import save_file

from data.layouts import oxford_pets
from fedotp.clip import CLIP, CONFIGS, ClipConfig
from fedotp.clip._config import ResNetConfig
from fedotp.clip._hub import PUBLISHED
from own_process import python

COMMAND = """
import json, os
from fedotp.clip import ClipConfig, _hub, _load
_hub.PUBLISHED["RN50"] = _hub.PUBLISHED["RN50"]._replace(sha256=os.environ["SHA256"])
_load.CONFIGS = {"RN50": ClipConfig.from_json(json.loads(os.environ["SHAPE"]))}
from fedotp.cli import main
main()
"""
WHERE = f"{PUBLISHED['RN50'].repository}/resolve/{PUBLISHED['RN50'].revision}/open_clip_model.safetensors"


@contextmanager
def hub(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve `folder` as the hub serves its files; the address, and what was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(f"{self.command} {self.path}")
            path = folder / self.path.lstrip("/")
            content = path.read_bytes() if path.is_file() else b""
            self.send_response(200 if content else 404)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", path.parent.name)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def do_GET(self) -> None:
            self.do_HEAD()

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


@pytest.mark.processes
def test_from_nothing_to_the_table(tmp_path: Path) -> None:
    vision = ResNetConfig(image_size=32, layers=(1, 1, 1, 1), width=2, heads=1)
    shape = ClipConfig(32, vision, replace(CONFIGS["RN50"].text, width=64, layers=1, heads=1))
    weights, home = tmp_path / "hub" / WHERE, tmp_path / "home"
    for folder in (weights.parent, home):
        folder.mkdir(parents=True)
    tensors = CLIP.random(shape).state_dict()
    save_file({key: value.half() if value.is_floating_point() else value for key, value in tensors.items()}, weights)
    environment = {
        "HF_HOME": str(home / "hf"),
        "HF_HUB_DISABLE_XET": "1",
        "FEDOTP_CACHE": str(home / "cache"),
        "COLUMNS": "140",
        "SHA256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "SHAPE": json.dumps(shape.to_json()),
    }
    root = home / "data"
    changes = ["partition.n_clients=3", "partition.shots=2", "federation.rounds=1", "federation.local_epochs=1"]
    changes += ["compute.device=cpu", f"data.root={root}"]
    options = [word for change in changes for word in ("--set", change)]
    words = ("paper", "run", "table1", "--only", "OxfordPets", "--seeds", "0", *options)

    with hub(tmp_path / "hub") as (address, asked):

        def fedotp(*words: str, status: int = 0) -> str:
            return python("-c", COMMAND, *words, cwd=home, status=status, HF_ENDPOINT=address, **environment).stdout

        nothing = fedotp(*words, status=2)
        assert "missing  the weights of RN50" in nothing
        assert f"into   {home}/hf/hub/models--timm--resnet50_clip.openai" in nothing
        assert f"into   {root}/oxford_pets/annotations" in nothing
        assert not asked
        assert not (home / "runs").exists()

        oxford_pets(root)
        fedotp("weights", "fetch", "RN50")
        assert asked[-2:] == [f"HEAD /{WHERE}", f"GET /{WHERE}"]

        done = fedotp(*words)
        lines = done.splitlines()
        assert any(line.startswith("FedOTP (Ours)") and "98.82 ± 0.11" in line for line in lines)
        table = (home / "runs" / "paper" / "table1.csv").read_text().splitlines()
        assert len(table) == 1 + 45
        ours = [row.split(",")[2] for row in table[1:] if row.split(",")[6]]  # where we have a number
        assert ours == 9 * ["OxfordPets"]
        assert "partition.shots is 2 instead of 4" in done
