"""Federations: rounds, sampling, local training along the client axis, aggregation, evaluation, checkpoints."""

from fedotp.federation._checkpoint import Progress, load_checkpoint, load_rows, load_server, save_checkpoint
from fedotp.federation._data import Features, FederatedData, HeldFeatures, Images
from fedotp.federation._evaluate import Predictions, predict
from fedotp.federation._kept import KeptRows
from fedotp.federation._local import LocalResult, LocalTrainer, LocalWork
from fedotp.federation._metrics import Evaluation, evaluate_predictions
from fedotp.federation._settings import (
    ComputeSettings,
    EvaluationSettings,
    OptimizerSettings,
    RoundSettings,
    Settings,
)
from fedotp.federation._simulator import RoundReport, Simulator

__all__ = [
    "ComputeSettings",
    "Evaluation",
    "EvaluationSettings",
    "Features",
    "FederatedData",
    "HeldFeatures",
    "Images",
    "KeptRows",
    "LocalResult",
    "LocalTrainer",
    "LocalWork",
    "OptimizerSettings",
    "Predictions",
    "Progress",
    "RoundReport",
    "RoundSettings",
    "Settings",
    "Simulator",
    "evaluate_predictions",
    "load_checkpoint",
    "load_rows",
    "load_server",
    "predict",
    "save_checkpoint",
]
