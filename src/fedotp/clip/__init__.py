"""CLIP's towers, tokenizer, weights and image preprocessing.

Shapes: B images or texts, V patches, L tokens, d text width, e width of the shared space.
"""

from fedotp.clip._config import CONFIGS, TINY, ClipConfig, ResNetConfig, TextConfig, VitConfig
from fedotp.clip._hub import fetch
from fedotp.clip._load import load, save
from fedotp.clip._mini import MINI
from fedotp.clip._model import CLIP, ImageFeatures
from fedotp.clip._preprocess import MEAN, STD, EvalTransform, TrainTransform, to_rgb
from fedotp.clip._tokenizer import Tokenizer
from fedotp.clip._transformer import Attention, Block, Transformer

__all__ = [
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
    "ResNetConfig",
    "TextConfig",
    "Tokenizer",
    "TrainTransform",
    "Transformer",
    "VitConfig",
    "fetch",
    "load",
    "save",
    "to_rgb",
]
