"""CLIP's towers, tokenizer, weights and image preprocessing.

Names are imported on first use, most of them with torch; preprocessing does not need it.

Shapes: B images or texts, V patches, L tokens, d text width, e width of the shared space.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.clip._config import CONFIGS as CONFIGS
    from fedotp.clip._config import MINI as MINI
    from fedotp.clip._config import TINY as TINY
    from fedotp.clip._config import ClassTable as ClassTable
    from fedotp.clip._config import ClipConfig as ClipConfig
    from fedotp.clip._config import VitConfig as VitConfig
    from fedotp.clip._hub import fetch as fetch
    from fedotp.clip._hub import find_weights as find_weights
    from fedotp.clip._load import load as load
    from fedotp.clip._load import save as save
    from fedotp.clip._load import with_class_features as with_class_features
    from fedotp.clip._model import CLIP as CLIP
    from fedotp.clip._model import ImageFeatures as ImageFeatures
    from fedotp.clip._preprocess import CHANNELS as CHANNELS
    from fedotp.clip._preprocess import EvalTransform as EvalTransform
    from fedotp.clip._preprocess import Normalisation as Normalisation
    from fedotp.clip._preprocess import TrainTransform as TrainTransform
    from fedotp.clip._preprocess import normalise as normalise
    from fedotp.clip._preprocess import preprocess as preprocess
    from fedotp.clip._preprocess import to_rgb as to_rgb
    from fedotp.clip._tokenizer import Tokenizer as Tokenizer
    from fedotp.clip._towers import Block as Block

__getattr__, __dir__ = lazy_face(__name__)
