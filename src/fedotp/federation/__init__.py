"""Federations: rounds, sampling, local training along the client axis, aggregation, evaluation, checkpoints.

Each part is imported when it is first used: metrics and progress know no torch, and whoever lists runs wants no more.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.federation._attack import Attack, Trap, trap_labels
    from fedotp.federation._canaries import Canaries
    from fedotp.federation._checkpoint import load_checkpoint, load_rows, load_server, save_checkpoint, state_digest
    from fedotp.federation._clients import Clients
    from fedotp.federation._controls import PERSONAL, SHARED, ZERO_SHOT, judge
    from fedotp.federation._data import Features, FederatedData, HeldFeatures, Images
    from fedotp.federation._evaluation import Evaluation, LocalTester, Predictions, by_domain, evaluate_predictions
    from fedotp.federation._hardware import client_bytes, n_threads, prompt_lengths, using_threads
    from fedotp.federation._joined import in_common
    from fedotp.federation._kept import KeptRows
    from fedotp.federation._local import LocalResult, LocalTrainer, LocalWork, OnImages
    from fedotp.federation._metrics import METRICS, Floats, Metric, percent
    from fedotp.federation._noisy import sampling_rate
    from fedotp.federation._predict import Predictor
    from fedotp.federation._progress import Progress, load_progress
    from fedotp.federation._random import Ints, draws, order
    from fedotp.federation._rule import Rule, Updates
    from fedotp.federation._sampling import absent, drawn_for_evaluation, held_out, n_sampled, sampled
    from fedotp.federation._server_step import ServerStep
    from fedotp.federation._settings import (
        VIEWS,
        AttackSettings,
        ComputeSettings,
        EvaluationSettings,
        OptimizerSettings,
        RoundSettings,
        ServerStepSettings,
        Settings,
    )
    from fedotp.federation._simulator import RoundReport, Simulator
    from fedotp.federation._spent import images_epsilon, require_average, steps_per_round
    from fedotp.federation._steps import learning_rate
    from fedotp.federation._together import Together
    from fedotp.federation._views import Novel, View

__all__ = [
    "METRICS",
    "PERSONAL",
    "SHARED",
    "VIEWS",
    "ZERO_SHOT",
    "Attack",
    "AttackSettings",
    "Canaries",
    "Clients",
    "ComputeSettings",
    "Evaluation",
    "EvaluationSettings",
    "Features",
    "FederatedData",
    "Floats",
    "HeldFeatures",
    "Images",
    "Ints",
    "KeptRows",
    "LocalResult",
    "LocalTester",
    "LocalTrainer",
    "LocalWork",
    "Metric",
    "Novel",
    "OnImages",
    "OptimizerSettings",
    "Predictions",
    "Predictor",
    "Progress",
    "RoundReport",
    "RoundSettings",
    "Rule",
    "ServerStep",
    "ServerStepSettings",
    "Settings",
    "Simulator",
    "Together",
    "Trap",
    "Updates",
    "View",
    "absent",
    "by_domain",
    "client_bytes",
    "drawn_for_evaluation",
    "draws",
    "evaluate_predictions",
    "held_out",
    "images_epsilon",
    "in_common",
    "judge",
    "learning_rate",
    "load_checkpoint",
    "load_progress",
    "load_rows",
    "load_server",
    "n_sampled",
    "n_threads",
    "order",
    "percent",
    "prompt_lengths",
    "require_average",
    "sampled",
    "sampling_rate",
    "save_checkpoint",
    "state_digest",
    "steps_per_round",
    "trap_labels",
    "using_threads",
]

__getattr__, __dir__ = lazy_face(
    __name__,
    __all__,
    [
        "_metrics",
        "_random",
        "_progress",
        "_attack",
        "_canaries",
        "_checkpoint",
        "_clients",
        "_controls",
        "_data",
        "_evaluation",
        "_hardware",
        "_joined",
        "_kept",
        "_local",
        "_predict",
        "_rule",
        "_sampling",
        "_server_step",
        "_spent",
        "_settings",
        "_simulator",
        "_steps",
        "_together",
        "_views",
    ],
)
