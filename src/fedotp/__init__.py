"""Personalised federated prompt learning of CLIP by unbalanced optimal transport (FedOTP).

`import fedotp` alone does not import torch: each name is imported on first use.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedotp import classifier as classifier
    from fedotp import clip as clip
    from fedotp import config as config
    from fedotp import data as data
    from fedotp import federation as federation
    from fedotp import limits as limits
    from fedotp import matching as matching
    from fedotp import methods as methods
    from fedotp import ot as ot
    from fedotp import prompts as prompts
    from fedotp import report as report
    from fedotp import runs as runs
    from fedotp.classifier import Classifier as Classifier
    from fedotp.classifier import load as load
    from fedotp.config import Config as Config
    from fedotp.config import load_config as load_config
    from fedotp.errors import FedotpError as FedotpError
    from fedotp.runs.directory import RunDirectory as RunDirectory
    from fedotp.runs.one import evaluate_run as evaluate_run
    from fedotp.runs.one import resume as resume
    from fedotp.runs.one import run as run

__getattr__, __dir__ = lazy_face(__name__)
