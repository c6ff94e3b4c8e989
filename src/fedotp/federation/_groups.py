"""How many clients fit side by side."""

import os
from dataclasses import replace
from pathlib import Path

import torch

from fedotp._cgroup import memory_left
from fedotp._memory import free_gpu_bytes
from fedotp.federation._settings import Settings
from fedotp.methods import Method, Need, Parameters, Prompt, Task

_SHARE = 0.5  # of the memory that is free now
_TEXT_FLOATS = 40  # kept for the backward pass per token, layer and unit of width: attention, norms, the MLP's 4x
_SIMILARITY_FLOATS = 8  # per similarity: itself, its plan, scratch of the solver, gradients
_CLASS_FLOATS = 4  # per number of a class feature: itself, at length 1, and what is computed once a round, twice
_COPIES = 8  # of what is learned: received, trained, gradients, the optimizer's moments, and those a graph works on
_ASSUMED = 4 << 30  # bytes, where the system does not say how much is free: on macOS and Windows
_CPU_GROUP = 64  # more clients at once gain nothing on a CPU, where one already fills the caches


def group_size(method: Method, task: Task, settings: Settings) -> int:
    """Clients to train side by side: what the settings say, or what fits into half of the free memory."""
    compute = settings.compute
    if compute.sequential:
        return 1
    if compute.group_size:
        return compute.group_size
    fits = n_fitting(method, task, settings)
    return fits if task.device.type == "cuda" else min(fits, _CPU_GROUP)


def n_fitting(method: Method, task: Task, settings: Settings) -> int:
    """Clients that fit into half of the free memory, at least one."""
    device = task.clip.text_projection.device
    return max(1, int(_SHARE * _free_bytes(device) / client_bytes(method, task, settings)))


def client_bytes(method: Method, task: Task, settings: Settings) -> float:
    """An estimate, on the high side, of what one client takes while it trains or is evaluated."""
    config = task.clip.config
    n_classes = len(task.classes)
    small = _of_one_class(task)
    params = _at_the_start(method, small)
    lengths = _lengths(small, method.training_prompts(small, params))
    tokens = sum(task.encoder_for(n_ctx).n_positions for n_ctx in lengths)
    text = config.text
    n_images = max(settings.federation.batch_size, settings.evaluation.batch_size)
    features = 3 * n_images * (config.n_patches + 1) * config.embed_dim
    n_prompts = max(len(lengths), len(prompt_lengths(method, task)))
    classes = _CLASS_FLOATS * n_prompts * n_classes * config.embed_dim
    similarities = _SIMILARITY_FLOATS * n_images * n_classes * n_prompts
    similarities *= config.n_patches if Need.TOKENS in method.needs else 1
    learned = _COPIES * sum(value.numel() for value in params.values())
    floats = _TEXT_FLOATS * tokens * text.width * text.layers + features + classes + similarities + learned
    return floats * task.clip.text_projection.element_size()


def prompt_lengths(method: Method, task: Task) -> list[int]:
    """How many vectors each of a client's N prompts has: (N,); that of a caption counts as the task's.

    They are those for one class, so that nothing large is made to find out how large it would be.
    """
    small = _of_one_class(task)
    return _lengths(small, method.prompts(small, method.untrained(small)))


def _of_one_class(task: Task) -> Task:
    return replace(task, classes=task.classes[:1], prompt=replace(task.prompt, per_class=False))


def _lengths(task: Task, prompts: tuple[Prompt, ...]) -> list[int]:
    return [
        task.encoder.n_ctx if prompt.context is None else prompt.context.shape[-2]
        for prompt in prompts
        for _ in range(prompt.n_prompts)
    ]


def _at_the_start(method: Method, task: Task) -> Parameters:
    """What one client trains in a first round, (1, ...)."""
    private = {name: value[None] for name, value in method.private(task).items()}
    params = method.start(method.send(method.shared(task, 1), None, 1), private)
    return params | method.derived(task, params, None)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return free_gpu_bytes(device)
    if (available := _available_bytes()) is not None:
        left = memory_left()
        return available if left is None else min(available, left)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError):
        return _ASSUMED


def _available_bytes() -> int | None:
    """Memory that can be had without swapping, what caches of files take included; None where Linux does not say."""
    try:
        facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return 1024 * int(facts["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        return None
