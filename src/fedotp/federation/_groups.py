"""How many clients fit side by side."""

import os

import torch

from fedotp.federation._settings import Settings
from fedotp.methods import Method, Task

_SHARE = 0.5  # of the memory that is free now
_TEXT_FLOATS = 40  # kept for the backward pass per token, layer and unit of width: attention, norms, the MLP's 4x
_SIMILARITY_FLOATS = 8  # per similarity: itself, its plan, scratch of the solver, gradients
_CPU_GROUP = 64  # more clients at once gain nothing on a CPU, where one already fills the caches


def group_size(method: Method, task: Task, settings: Settings, n_prompts: int) -> int:
    """Clients to train side by side: what the settings say, or what fits into half of the free memory."""
    compute = settings.compute
    if compute.sequential:
        return 1
    if compute.group_size:
        return compute.group_size
    device = task.clip.text_projection.device
    fits = int(_SHARE * _free_bytes(device) / client_bytes(task, settings, n_prompts))
    return max(1, fits if device.type == "cuda" else min(fits, _CPU_GROUP))


def client_bytes(task: Task, settings: Settings, n_prompts: int) -> float:
    """An estimate, on the high side, of what one client takes while it trains or is evaluated."""
    config = task.clip.config
    n_classes = len(task.classes)
    text = config.text
    suffix = task.encoder.eot.max().item() + 1 - task.encoder.prefix
    tokens = n_prompts * (task.encoder.prefix + n_classes * suffix)
    n_images = max(settings.federation.batch_size, settings.evaluation.batch_size)
    features = 3 * n_images * (config.n_patches + 1) * config.embed_dim
    similarities = _SIMILARITY_FLOATS * n_images * n_classes * config.n_patches * n_prompts
    floats = _TEXT_FLOATS * tokens * text.width * text.layers + features + similarities
    return floats * task.clip.text_projection.element_size()


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
