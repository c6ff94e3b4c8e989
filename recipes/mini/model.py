"""The shape of mini, and float32 master weights with a running average for training it in bfloat16."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedotp.clip import CLIP, ClipConfig, Tokenizer, VitConfig
from fedotp.clip._config import TextConfig

EMBED = 256
CONTEXT_LENGTH = 48


def build(tokenizer: Tokenizer) -> CLIP:
    """A fresh mini."""
    vision = VitConfig(image_size=64, patch_size=8, width=256, layers=10, heads=4)
    text = TextConfig(tokenizer.vocab_size, CONTEXT_LENGTH, width=256, layers=4, heads=4, eot=tokenizer.eot)
    return CLIP(ClipConfig(EMBED, vision, text, activation="gelu"), tokenizer=tokenizer)


class Trainer:
    """AdamW on float32 copies of a bfloat16 module's parameters, gradient clipping and a running average.

    Parameters whose name holds one of `slow` learn at a tenth of the rate.
    """

    def __init__(
        self, module: nn.Module, *, decay: float, average: float, slow: tuple[str, ...] = (), fused: bool = True
    ) -> None:
        """`average` is the weight kept by the running average at each step."""
        named = list(module.named_parameters())
        self.live: list[Tensor] = [p for _, p in named]
        self.master = [p.detach().float().clone() for p in self.live]
        self.mean = [p.clone() for p in self.master]
        self.average = average
        self.n_steps = 0
        groups = [
            {
                "params": [m],
                "weight_decay": decay if m.ndim > 1 and not any(s in name for s in slow) else 0.0,
                "factor": 0.1 if any(s in name for s in slow) else 1.0,
            }
            for (name, _), m in zip(named, self.master, strict=True)
        ]
        self.optimizer = torch.optim.AdamW(_merged(groups), lr=0.0, betas=(0.9, 0.98), fused=fused)
        self.gradient = [torch.zeros_like(master) for master in self.master]
        for master, gradient in zip(self.master, self.gradient, strict=True):
            master.grad = gradient
        module.to(torch.bfloat16)

    def step(self, loss: Tensor, lr: float) -> None:
        """Backward, clip to norm 1, update the masters, copy them back."""
        for parameter in self.live:
            parameter.grad = None
        loss.backward()
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.live]
        torch._foreach_copy_(self.gradient, gradients)
        nn.utils.clip_grad_norm_(self.master, 1.0, foreach=True)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(self.live, self.master)
        self.n_steps += 1
        kept = min(self.average, (1 + self.n_steps) / (10 + self.n_steps))
        torch._foreach_lerp_(self.mean, self.master, 1 - kept)

    def finish(self, module: nn.Module) -> None:
        """Give the module its averaged weights, in float32."""
        module.float()
        with torch.no_grad():
            for parameter, mean in zip(module.parameters(), self.mean, strict=True):
                parameter.copy_(mean)
        module.requires_grad_(False).eval()


def _merged(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parameters of equal settings in one group."""
    merged: dict[tuple[float, float], list[Tensor]] = {}
    for group in groups:
        merged.setdefault((group["weight_decay"], group["factor"]), []).extend(group["params"])
    return [{"params": p, "weight_decay": decay, "factor": factor} for (decay, factor), p in merged.items()]


@dataclass
class Budget:
    """A training loop that lasts a number of seconds: cosine learning rate after a short warm-up, and a log."""

    seconds: float
    lr: float
    warmup: int = 200
    log_every: int = 250
    stage: str = ""
    log: Path | None = None
    step: int = 0
    done: float = 0.0
    _start: float = field(default_factory=time.perf_counter)

    def steps(self) -> Iterator[float]:
        """Yields the learning rate of each step; `done` is the share of the time that has passed."""
        self._start = time.perf_counter()
        while True:
            if self.step % 10 == 0 and torch.cuda.is_available():
                torch.cuda.synchronize()  # or the clock would run ahead of the queue of kernels
            self.done = (time.perf_counter() - self._start) / self.seconds
            if self.done >= 1:
                return
            self.step += 1
            yield self.lr * min(1.0, self.step / self.warmup) * 0.5 * (1 + math.cos(math.pi * self.done))

    def report(self, **values: Tensor | float) -> None:
        """Print and log some values every `log_every` steps."""
        if self.step % self.log_every:
            return
        numbers = {name: round(float(torch.as_tensor(value).detach()), 4) for name, value in values.items()}
        write_log(self.log, stage=self.stage, step=self.step, seconds=round(self.done * self.seconds, 1), **numbers)


def write_log(path: Path | None, **values: object) -> None:
    """One line of JSON to a file and to the terminal."""
    line = json.dumps(values)
    print(line, flush=True)
    if path is not None:
        with path.open("a") as file:
            file.write(line + "\n")
