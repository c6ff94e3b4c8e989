"""A whole experiment as a user starts it: JPEG files to the result of ten rounds, process start included.

On a GPU the paper's few-shot shapes: ViT-B/16 with random weights in float16, 37 classes, 3,680 training images, 16 of
each class used, 3,669 test images, all of 500 x 375 pixels, 10 clients, 10 rounds of 5 epochs. Without one, a toy
backbone and fewer images: the stages can be compared, the times say little. A first run, then three with an empty token
store and three with the tokens of the run before.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
_SHOTS, _TRAIN, _TEST = 16, 3_680, 3_669  # images of a class that are used; images
_RUNS = 3
_WORDS = (
    "acorn amber anchor apple arrow badge banjo basil beach berry birch bison blade bloom brick cabin cedar chalk "
    "clover comet coral crane daisy delta eagle ember fable fern flint grove hazel ivory jewel kite lemon maple otter"
)


def cannot_run() -> str | None:
    return None


def run() -> dict[str, float]:
    import torch

    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder, cuda=torch.cuda.is_available())
        for precision, runs in (("bfloat16", _RUNS), ("float32", 1)):
            kinds = ["from JPEG files, the first time"] if runs > 1 else []
            kinds += [
                f"{kind}, run {run}" for kind in ("from JPEG files", "cached tokens") for run in range(1, runs + 1)
            ]
            for kind in kinds:
                if "JPEG" in kind:
                    shutil.rmtree(folder / "tokens", ignore_errors=True)
                title = f"{precision}, {kind}"
                seconds = _experiment(folder, title, precision)
                figures |= {f"{title}: {stage}, s": value for stage, value in seconds.items()}
                print(title, *(f"{stage} {value:.2f}" for stage, value in seconds.items()), flush=True)
    return figures


def lay_out(folder: Path, *, cuda: bool) -> None:
    """Write images, weights and experiment.toml into `folder`."""
    import torch

    from fedotp.clip import CLIP, CONFIGS, TINY, save

    words = _WORDS.split() if cuda else _WORDS.split()[:6]
    sizes = {"train": _TRAIN if cuda else _SHOTS * len(words), "test": _TEST if cuda else 10 * len(words)}
    paths = [f"{part}/{words[i % len(words)]}/{i}.jpg" for part, n in sizes.items() for i in range(n)]
    _write_all(folder / "images", paths)
    save(CLIP.random(CONFIGS["ViT-B/16"] if cuda else TINY), folder / "weights", dtype=torch.float16)
    (folder / "experiment.toml").write_text(
        f"""
        data = {{ dataset = "{folder / "images"}", store = "{folder / "tokens"}" }}
        backbone = {{ name = "{folder / "weights"}" }}
        partition = {{ scheme = "pathological", n_clients = {10 if cuda else 3}, shots = {_SHOTS} }}
        federation = {{ rounds = {10 if cuda else 2}, local_epochs = 5, batch_size = 32 }}
        optimizer = {{ lr = 0.001 }}
        method = {{ name = "fedotp" }}
        """
    )


def _experiment(folder: Path, title: str, precision: str) -> dict[str, float]:
    """Seconds of the whole process and of its stages, both towers in `precision`."""
    options = ["run", str(folder / "experiment.toml"), "--out", str(folder / title), "--quiet"]
    options += [word for key in ("data", "compute") for word in ("--set", f"{key}.precision={precision}")]
    told = folder / f"{title}.json"
    start = time.time()
    subprocess.run(
        [sys.executable, "-c", "from bench.experiment import staged; staged()", str(told), str(start), *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path])},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    wall, stages = time.time() - start, json.loads(told.read_text())
    return {"wall clock": wall, **stages, "exit": wall - sum(stages.values())}


def staged() -> None:
    """In the process: the `fedotp` command, and how long its stages took."""
    told, start, sys.argv[1:] = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    seconds = {"python": time.time() - start}
    with _timed(seconds, "import torch"):
        import torch
    with _timed(seconds, "import fedotp"):
        from fedotp import cli
        from fedotp.runs.one import _inputs, _loop, _prepare, _run
    stages: list[tuple[Any, str, str]] = [
        (_inputs, "load_dataset", "list images"),
        (_prepare, "load_backbone", "weights"),
        (_prepare, "encode_for", "encode"),
        (_prepare, "_resident", "tokens to the device"),
        (_run, "make_manifest", "manifest"),
        (_loop.Loop, "go", "rounds"),
    ]
    for owner, name, stage in stages:
        setattr(owner, name, _measured(getattr(owner, name), seconds, stage))
    find_device = _inputs.find_device

    def found(name: str) -> torch.device:
        with _timed(seconds, "device"):
            device = find_device(name)
            torch.zeros(1, device=device)
        return device

    for module in (_inputs, _prepare):
        setattr(module, "find_device", found)  # noqa: B010
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise
    seconds["other"] = time.time() - start - sum(seconds.values())
    told.write_text(json.dumps(seconds))


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Add the time of a block to what a stage took."""
    start = time.perf_counter()
    yield
    seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start


def _measured(work: Callable[..., Any], seconds: dict[str, float], stage: str) -> Callable[..., Any]:
    @wraps(work)
    def measured(*args: Any, **options: Any) -> Any:
        with _timed(seconds, stage):
            return work(*args, **options)

    return measured


def _write_all(root: Path, paths: list[str]) -> None:
    """Write the images, in one process per core."""
    n = os.cpu_count() or 1
    (root.parent / "paths.json").write_text(json.dumps(paths))
    code = "import sys; from bench.experiment import write_images; write_images(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(root), str(root.parent / "paths.json")]
    writers = [subprocess.Popen([*command, str(k), str(n)], cwd=ROOT) for k in range(n)]
    assert [writer.wait() for writer in writers] == [0] * n


def write_images(root: str, listed: str, first: str, step: str) -> None:
    """Write every `step`-th of the listed images."""
    paths = json.loads(Path(listed).read_text())
    for number in range(int(first), len(paths), int(step)):
        path = Path(root, paths[number])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))


def jpeg(number: int) -> bytes:
    """Blurred colours, ellipses and grain: 500 x 375 pixels, some 80 kB."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(number)
    image = Image.fromarray(rng.integers(0, 256, (47, 63, 3), np.uint8)).resize((500, 375), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for left, top, width, height, *colour in rng.integers(0, 256, (20, 7)).tolist():
        draw.ellipse((2 * left, top, 2 * left + width // 2, top + height // 2), fill=tuple(colour))
    grain = rng.integers(-12, 13, (375, 500, 3), np.int16)
    content = io.BytesIO()
    Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8)).save(content, "JPEG", quality=90)
    return content.getvalue()
