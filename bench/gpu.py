"""A round on a GPU: the paper's few-shot shapes, both precisions, what the hardware could do, and where the rest goes.

37 classes, 10 clients with 59 images, 5 local epochs in batches of 32, 3,669 test images; and 100 classes with 100
clients of which 10 are sampled. Features and weights are random, which changes no cost. Ceilings are measured here: a
large matrix product, and a copy of a large tensor.
"""

import time
from collections.abc import Callable
from functools import partial

import torch

from bench._record import medians
from bench.federation import _data, _task
from fedotp import ot
from fedotp.clip import CLIP, CONFIGS
from fedotp.federation import ComputeSettings, RoundSettings, Settings, Simulator
from fedotp.methods import FedOTP, Precision
from fedotp.privacy import PrivacySettings

_PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def cannot_run() -> str | None:
    return None if torch.cuda.is_available() else "needs a GPU"


def run() -> dict[str, float]:
    figures = {**_ceilings()}
    for backbone in ("ViT-B/16", "RN50"):
        clip = CLIP.random(CONFIGS[backbone]).to("cuda")
        figures |= _rounds(
            f"{backbone}, 37 classes, 10 clients", clip, n_clients=10, sampled=10, n_classes=37, n_train=59
        )
        if backbone == "ViT-B/16":
            figures |= _again(clip)
            figures |= _text_tower(clip)
            figures |= _rounds(
                f"{backbone}, 100 classes, 10 of 100 clients",
                clip,
                n_clients=100,
                sampled=10,
                n_classes=100,
                n_train=16,
            )
    return figures | _transport() | _private()


def _ceilings() -> dict[str, float]:
    """Of a matrix product in each precision, TFLOP/s, and of reading and writing memory, TB/s."""
    figures = {}
    for precision in _PRECISIONS:
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=getattr(torch, precision)) for _ in range(2))
        figures[f"ceiling: matrix product in {precision}, TFLOP/s"] = 2 * 8192**3 / _seconds(partial(a.mm, b)) / 1e12
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    figures["ceiling: copying memory, TB/s read and written"] = 2 * (1 << 30) / _seconds(lambda: y.copy_(x)) / 1e12
    return figures


def _rounds(name: str, clip: CLIP, *, n_clients: int, sampled: int, n_classes: int, n_train: int) -> dict[str, float]:
    """Training and evaluation of one round, its launches by themselves, and the peak of memory."""
    n_test = 3670 // sampled if n_clients == sampled else 37
    data = _data(clip.config, n_clients, n_train, n_classes=n_classes, n_test=n_test, device="cuda")
    figures = {}
    for precision in _PRECISIONS:
        rounds = RoundSettings(participation=sampled / n_clients)
        settings = Settings(rounds, compute=ComputeSettings(precision=precision))
        simulator = Simulator(FedOTP(), _task(clip, n_classes), data, settings)
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        simulator.run_round()
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        seconds = medians({"train": _waiting(simulator.run_round), "evaluate": _waiting(simulator.predict)}, repeats=7)
        key = f"{name}, {precision}"
        figures[f"{key}: training, seconds"] = seconds["train"]
        figures[f"{key}: evaluation, seconds"] = seconds["evaluate"]
        figures[f"{key}: a round, seconds"] = sum(seconds.values())
        figures[f"{key}: the first round's training, seconds"] = first
        figures[f"{key}: peak memory, GiB"] = torch.cuda.max_memory_allocated() / (1 << 30)
        figures |= _busy(key, simulator)
    return figures


def _again(clip: CLIP, runs: int = 3) -> dict[str, float]:
    """Training and evaluation of one round in bfloat16, in further runs; each captures its own graphs."""
    data = _data(clip.config, 10, 59, n_classes=37, n_test=367, device="cuda")
    figures = {}
    for run in range(1, runs + 1):
        settings = Settings(compute=ComputeSettings(precision="bfloat16"))
        simulator = Simulator(FedOTP(), _task(clip, 37), data, settings)
        seconds = medians({"train": _waiting(simulator.run_round), "evaluate": _waiting(simulator.predict)}, repeats=15)
        figures[f"ViT-B/16, 37 classes, 10 clients, bfloat16, run {run}: a round, seconds"] = sum(seconds.values())
    return figures


def _busy(key: str, simulator: Simulator) -> dict[str, float]:
    """How long kernels run in a round, and what kind of kernels."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        simulator.run_round()
        simulator.predict()
        torch.cuda.synchronize()
    products = ("gemm", "cutlass", "nvjet", "xmma")
    total = {"matrix products": 0.0, "everything else": 0.0}
    for event in profiled.key_averages():
        is_product = any(word in event.key.lower() for word in products)
        total["matrix products" if is_product else "everything else"] += event.self_device_time_total / 1e6
    return {f"{key}: kernels of a round, {kind}, seconds": seconds for kind, seconds in total.items()}


def _text_tower(clip: CLIP) -> dict[str, float]:
    """TFLOP/s of class features of 10 clients with two prompts, 37 classes, and of their gradient."""
    figures = {}
    for precision in _PRECISIONS:
        task = _task(clip, 37).in_precision(precision)
        context = task.contexts(2).expand(10, -1, -1, -1).clone()
        encoder = task.encoder
        forward = 20 * encoder.n_units * 24 * encoder.width  # products with weights; attention is little beside them

        def there(task=task, context=context) -> None:  # type: ignore[no-untyped-def]
            with torch.no_grad():
                task.features(context)

        def and_back(task=task, context=context) -> None:  # type: ignore[no-untyped-def]
            leaf = context.detach().requires_grad_()
            task.features(leaf).sum().backward()

        from fedotp._graphs import Recorded

        for name, work, times in (("forward", there, 1), ("forward and backward", and_back, 2)):
            seconds = _seconds(Recorded(work))
            figures[f"text tower, {precision}, {name}: TFLOP/s"] = times * forward / seconds / 1e12
    return figures


def _transport() -> dict[str, float]:
    """Bytes of similarities read per second by transport of one batch: 10 clients, 32 images, 37 classes, 196 x 2."""
    figures = {}
    for reg in (0.1, 0.01):
        similar = 0.3 * torch.rand(10, 37, 2, 32, 196, device="cuda").permute(0, 3, 1, 4, 2)
        seconds = _seconds(partial(ot.score, similar, reg=reg))
        figures[f"transport, reg {reg}: TB/s of similarities"] = similar.numel() * 4 / seconds / 1e12
    return figures


def _private() -> dict[str, float]:
    """An epoch of ten clients with private steps and with plain ones, in float32.

    A private step of 32 images goes back through the text tower 32 times for each client, a plain one once for each
    prompt: 37 passes, forward or back, for 4.
    """
    clip = CLIP.random(CONFIGS["ViT-B/16"]).to("cuda")
    data = _data(clip.config, 10, 59, n_classes=37, n_test=10, device="cuda")
    rounds = {}
    for name, privacy in (("plain", PrivacySettings()), ("private", PrivacySettings("example", noise=1.0))):
        settings = Settings(RoundSettings(local_epochs=1), privacy=privacy)
        rounds[name] = _waiting(Simulator(FedOTP(), _task(clip, 37), data, settings).run_round)
    figures: dict[str, float] = {}
    for run in (1, 2, 3):
        seconds = medians(rounds, repeats=3)
        key = f"ViT-B/16, 37 classes, 10 clients, run {run}: an epoch"
        figures |= {f"{key}, {name}, seconds": value for name, value in seconds.items()}
        figures[f"{key}, private / plain"] = seconds["private"] / seconds["plain"]
    return figures


def _seconds(work: Callable[[], object], repeats: int = 30) -> float:
    """Mean seconds of back-to-back launches."""
    work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def _waiting(work: Callable[[], object]) -> Callable[[], object]:
    def done() -> None:
        work()
        torch.cuda.synchronize()

    return done
