"""The text tower of ViT-B/16, forward and backward, 2 prompts: shared prefix against all 77 positions.

Float32, random weights of the real shape, n_ctx 16, the class name at the end. "Truncated" computes every class
whole, but only up to its end-of-text token.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bench._record import medians
from fedotp.clip import CLIP, CONFIGS, TINY
from fedotp.prompts import PromptEncoder, random_context

ADJECTIVES = ("small", "striped", "old", "red", "flying", "wooden", "spotted", "giant", "wild", "domestic")
NOUNS = ("cat", "train", "lily", "bottle", "whale", "house", "beetle", "maple tree", "can opener", "teapot")


def cannot_run() -> str | None:
    return None


def run() -> dict[str, float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # The image tower is not used: a tiny one keeps memory for the text tower.
    full = CONFIGS["ViT-B/16"]
    clip = CLIP.random(dataclasses.replace(TINY, text=full.text, embed_dim=full.embed_dim)).to(device)
    names = [f"{adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS]
    context = random_context(clip, n_prompts=2).requires_grad_()
    figures: dict[str, float] = {}
    for n_classes in (10, 37, 100):
        encode = PromptEncoder(clip, names[:n_classes])
        figures[f"{n_classes} classes: positions used of 77"] = encode.eot.max().item() + 1
        seconds = medians(
            {
                "plain": partial(step, encode.encode_plain, context),
                "truncated": partial(step, partial(truncated, encode), context),
                "shared": partial(step, encode, context),
            },
            repeats=3,
        )
        for name, value in seconds.items():
            figures[f"{n_classes} classes: {name}, ms"] = 1e3 * value
        figures[f"{n_classes} classes: 77 positions / truncated"] = seconds["plain"] / seconds["truncated"]
        figures[f"{n_classes} classes: 77 positions / shared prefix"] = seconds["plain"] / seconds["shared"]
        fast, plain = encode(context), encode.encode_plain(context)
        figures[f"{n_classes} classes: relative error"] = ((fast - plain).norm() / plain.norm()).item()
    return figures


def step(encode: Callable[[Tensor], Tensor], context: Tensor) -> None:
    features = encode(context)
    torch.autograd.grad(features.square().sum(), context)
    if context.is_cuda:
        torch.cuda.synchronize()


def truncated(encode: PromptEncoder, context: Tensor) -> Tensor:
    """The plain path on a tower that ends where the longest prompt does."""
    clip = encode.clip
    whole = clip.config
    length = int(encode.eot.max()) + 1
    clip.config = dataclasses.replace(whole, text=dataclasses.replace(whole.text_tower, context_length=length))
    try:
        return encode.encode_plain(context)
    finally:
        clip.config = whole
