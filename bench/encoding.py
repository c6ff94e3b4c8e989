"""The token store: decoding, encoding and reading speed, int8's effect on scores, memory at 100,000 images.

"Outside the tower" is the share of an encoding run that the tower alone, fed with ready pixels just before
and just after it, would not take. Memory is that of processes of their own that encode generated images with
a toy tower.
"""

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from fedotp._images import decoded
from fedotp.clip import CLIP, CONFIGS, TINY, EvalTransform, load, save
from fedotp.data import Dataset, ImageSource, Split
from fedotp.data.store import EncodedDataset, Storage, encode
from fedotp.data.store._views import Tower
from fedotp.ot import score

_STATUS = Path("/proc/self/status")
_BATCH = 64


def cannot_run() -> str | None:
    return None if _STATUS.exists() else "memory is measured through Linux's /proc"


def run() -> dict[str, float]:
    cuda = torch.cuda.is_available()
    name, n_images = ("ViT-B/16", 8192) if cuda else ("ViT-B/32", 128)
    with tempfile.TemporaryDirectory() as folder:  # a loaded model knows its digest, as in a user's run
        save(CLIP.random(CONFIGS[name]), Path(folder) / "weights")
        clip = load(Path(folder) / "weights", device="cuda" if cuda else "cpu")
    figures = _speed(clip, name, n_images, torch.bfloat16 if cuda else None)
    for n in (1_000, 10_000, 100_000):
        code = f"from bench.encoding import memory; print(*memory({n}))"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)
        peak, reading = done.stdout.split()
        figures[f"peak memory, encoding {n:,} images, MiB"] = float(peak)
        figures[f"private memory added by reading {n:,} images, MiB"] = float(reading)
    return figures


def memory(n_images: int) -> tuple[float, float]:
    """Encode and read `n_images`: peak of all memory while encoding, growth of private memory by reading."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        encoded = encode(_dataset(_Pixels(), n_images), CLIP.random(TINY), root=Path(folder))
        peak, before = _mib("VmHWM"), _mib("RssAnon")
        _read_all(encoded)
        return peak, _mib("RssAnon") - before


def _speed(clip: CLIP, name: str, n_images: int, precision: torch.dtype | None) -> dict[str, float]:
    dataset, transform, tower = _dataset(_Jpegs(), n_images), EvalTransform(224), Tower(clip, precision)
    pixels = torch.stack([transform(dataset.train.image(i)) for i in range(_BATCH)])
    tower(pixels).tokens.cpu()  # warm up
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def encoded(storage: Storage = "float16") -> EncodedDataset:
            return encode(dataset, clip, root=Path(folder), storage=storage, batch_size=_BATCH, precision=precision)

        def decode() -> None:
            list(pool.map(lambda i: transform(dataset.train.image(i)).shape, range(n_images)))

        def only_tower() -> None:
            for _ in range(n_images // _BATCH // 2):
                tower(pixels).tokens.cpu()

        before, encoding, after = (_seconds(work) for work in (only_tower, encoded, only_tower))
        checking = _seconds(encoded)
        found = encoded()
        figures = {
            f"{name}, decoding alone, images/s": n_images / _seconds(decode),
            f"{name}, tower alone, images/s": n_images / (before + after),
            f"{name}, encoding, images/s": n_images / encoding,
            f"{name}, share of encoding outside the tower": max(1 - (before + after) / encoding, 0.0),
            f"{name}, finding and checking tokens, images/s": n_images / checking,
            f"{name}, reading batches of 32, images/s": n_images / _seconds(lambda: _read_all(found)),
        }
        exact = clip.encode_image(pixels.to(clip.text_projection.device)).tokens.cpu()
        for storage in ("float16", "int8"):
            stored = encoded(storage).train.read(np.arange(_BATCH)).tokens
            change = (_scores(stored) - _scores(exact)).abs().max().item()
            figures[f"{name}, largest change of a score by {storage}"] = change
    return figures


def _scores(tokens: Tensor) -> Tensor:
    """Matching scores (B, K) with ten random classes of two prompts, as in the paper's setting."""
    generator = torch.Generator().manual_seed(0)
    classes = normalize(torch.randn(10, 2, tokens.shape[-1], generator=generator), dim=-1)  # (K, N, e)
    return score(torch.einsum("bve,kne->bkvn", normalize(tokens, dim=-1), classes), mass=0.8)


def _read_all(encoded: EncodedDataset) -> None:
    order = np.random.default_rng(0).permutation(len(encoded.train))
    for start in range(0, len(order), 32):
        encoded.train.read(order[start : start + 32])


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _mib(what: str) -> float:
    """Memory of this process: VmHWM is the peak of all; RssAnon leaves out the pages of mapped files."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) / 1024


def _dataset(source: ImageSource, n: int) -> Dataset:
    train = Split(source, np.arange(n), np.zeros(n, np.int64), np.zeros(n, np.int64))
    return Dataset("generated", ("thing",), ("all",), train, train.select(np.arange(1)), "generated")


class _Generated:
    """Images made of their number."""

    def name(self, row: int) -> str:
        return str(row)

    where = name


class _Pixels(_Generated):
    """16 x 16 pixels."""

    def read(self, row: int) -> bytes:
        return row.to_bytes(8, "big") * 96

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        return nullcontext(Image.frombytes("RGB", (16, 16), content))


@dataclass(frozen=True)
class _Jpegs(_Generated):
    """JPEG files of 320 x 256 pixels, told apart by the bytes after their end."""

    content: bytes = field(init=False)

    def __post_init__(self) -> None:
        coarse = np.random.default_rng(0).integers(0, 256, (32, 40, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(coarse).resize((320, 256), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        object.__setattr__(self, "content", file.getvalue())

    def read(self, row: int) -> bytes:
        return self.content + row.to_bytes(8, "big")

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        return decoded(content)
