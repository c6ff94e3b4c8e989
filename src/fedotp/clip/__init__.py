"""CLIP's towers, tokenizer, weights and image preprocessing.

Each part is imported when it is first used, most of them with torch; preprocessing needs none of it.

Shapes: B images or texts, V patches, L tokens, d text width, e width of the shared space.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.clip._config import CONFIGS, MINI, TINY, ClipConfig, ResNetConfig, TextConfig, VitConfig
    from fedotp.clip._hub import Weights, fetch, find_weights
    from fedotp.clip._load import load, save
    from fedotp.clip._model import CLIP, ImageFeatures
    from fedotp.clip._preprocess import (
        CHANNELS,
        MEAN,
        STD,
        EvalTransform,
        Look,
        Shown,
        TrainTransform,
        Window,
        normalise,
        preprocess,
        to_rgb,
    )
    from fedotp.clip._resize import resize, resizes_like_pillow
    from fedotp.clip._tokenizer import Tokenizer
    from fedotp.clip._transformer import Attention, Block, Transformer

__all__ = [
    "CHANNELS",
    "CLIP",
    "CONFIGS",
    "MEAN",
    "MINI",
    "STD",
    "TINY",
    "Attention",
    "Block",
    "ClipConfig",
    "EvalTransform",
    "ImageFeatures",
    "Look",
    "ResNetConfig",
    "Shown",
    "TextConfig",
    "Tokenizer",
    "TrainTransform",
    "Transformer",
    "VitConfig",
    "Weights",
    "Window",
    "fetch",
    "find_weights",
    "load",
    "normalise",
    "preprocess",
    "resize",
    "resizes_like_pillow",
    "save",
    "to_rgb",
]

__getattr__, __dir__ = lazy_face(
    __name__,
    __all__,
    ["_config", "_preprocess", "_hub", "_tokenizer", "_transformer", "_model", "_load", "_resize"],
)
