"""The token store: decoding, encoding and reading speed, int8's effect on scores, memory at 100,000 images.

Decoding is that of JPEG files of 500 x 375 pixels, the start of threads or processes included. "Outside the tower" is
the share of an encoding run that the tower alone, fed with ready pixels just before and just after it, would not take.
Memory is that of processes of their own that encode generated images with a toy tower.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench._record import medians
from bench.experiment import jpeg
from fedotp.clip import CLIP, CONFIGS, TINY, EvalTransform, load, save
from fedotp.clip import normalise as normalise_pixels
from fedotp.data import Dataset, Split
from fedotp.data._dataset import ImageFiles, ImageSource
from fedotp.data.store import EncodedDataset, Storage, _pool, encode
from fedotp.data.store._crops import Request
from fedotp.data.store._pool import DecoderPool
from fedotp.data.store._tower import SplitImage, Tower
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
        files = _write_jpegs(Path(folder) / "images", max(n_images, 1024))
        figures = _decoding(_dataset(files, len(files.paths)))
        dataset = _dataset(files, n_images)
        for precision in (None, torch.bfloat16) if cuda else (None,):
            title = f"{name} in {str(precision or torch.float32).removeprefix('torch.')}"
            figures |= _speed(dataset, clip, title, precision)
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


def _decoding(dataset: Dataset) -> dict[str, float]:
    """Hashing, decoding and cropping alone, from first to last image, by threads and by processes in turn."""
    split, n = dataset.train, len(dataset.train)

    def decode(few_images: int) -> None:
        usual = _pool._FEW_IMAGES, _pool._FEW_CORES
        _pool._FEW_IMAGES, _pool._FEW_CORES = few_images, 2
        with DecoderPool(4 * _BATCH, 224) as decoders:
            decoders.expect(n)
            _pool._FEW_IMAGES, _pool._FEW_CORES = usual
            for start in range(0, n, 4 * _BATCH):
                requests = [
                    Request(SplitImage(split, i), crops=((0, 0),), transform=EvalTransform(224), row=i - start)
                    for i in range(start, min(start + 4 * _BATCH, n))
                ]
                assert not any(looked.broken for looked in decoders.submit(requests))

    seconds = medians({"threads": lambda: decode(n + 1), "processes": lambda: decode(0)}, repeats=3)
    return {f"decoding by {how}, images/s": n / each for how, each in seconds.items()}


def _speed(dataset: Dataset, clip: CLIP, name: str, precision: torch.dtype | None) -> dict[str, float]:
    transform, tower, n_images = EvalTransform(224), Tower(clip, precision), len(dataset.train)
    crops = [transform.crop(dataset.train.image(i)) for i in range(_BATCH)]
    pixels = torch.from_numpy(np.stack([np.asarray(crop) for crop in crops]))
    tower(pixels).tokens.cpu()  # warm up
    with tempfile.TemporaryDirectory() as folder:

        def encoded(storage: Storage = "float16") -> EncodedDataset:
            return encode(dataset, clip, root=Path(folder), storage=storage, batch_size=_BATCH, precision=precision)

        def only_tower() -> None:
            for _ in range(n_images // _BATCH // 2):
                features = tower(pixels)
            features.tokens.cpu()

        before, encoding, after = (_seconds(work) for work in (only_tower, encoded, only_tower))
        checking = _seconds(encoded)
        found = encoded()
        figures = {
            f"{name}, tower alone, images/s": n_images / (before + after),
            f"{name}, encoding, images/s": n_images / encoding,
            f"{name}, share of encoding outside the tower": max(1 - (before + after) / encoding, 0.0),
            f"{name}, finding and checking tokens, images/s": n_images / checking,
            f"{name}, reading batches of 32, images/s": n_images / _seconds(lambda: _read_all(found)),
        }
        exact = clip.encode_image(normalise_pixels(pixels.to(clip.text_projection.device))).tokens.cpu()
        for storage in ("float16", "int8"):
            stored = encoded(storage).train.read(np.arange(_BATCH)).tokens
            change = (_scores(stored) - _scores(exact)).abs().max().item()
            figures[f"{name}, largest change of a score by {storage}"] = change
    return figures


def _write_jpegs(root: Path, n: int) -> ImageFiles:
    """Files of 500 x 375 pixels; a few dozen different ones, told apart by the bytes after their end."""
    root.mkdir()
    different = [jpeg(number) for number in range(min(n, 64))]
    for i in range(n):
        (root / f"{i}.jpg").write_bytes(different[i % len(different)] + i.to_bytes(8, "big"))
    return ImageFiles(root, tuple(f"{i}.jpg" for i in range(n)))


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
        return b"P6 16 16 255\n" + row.to_bytes(8, "big") * 96
