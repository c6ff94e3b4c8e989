"""Federations: rounds, sampling, local training along the client axis, aggregation, evaluation, checkpoints.

Each part is imported when it is first used: metrics and progress know no torch, and whoever lists runs wants no more.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.federation._attack import Attack as Attack
    from fedotp.federation._attack import Trap as Trap
    from fedotp.federation._attack import trap_labels as trap_labels
    from fedotp.federation._canaries import Canaries as Canaries
    from fedotp.federation._checkpoint import load_checkpoint as load_checkpoint
    from fedotp.federation._checkpoint import load_rows as load_rows
    from fedotp.federation._checkpoint import load_server as load_server
    from fedotp.federation._checkpoint import save_checkpoint as save_checkpoint
    from fedotp.federation._checkpoint import state_digest as state_digest
    from fedotp.federation._clients import Clients as Clients
    from fedotp.federation._controls import PERSONAL as PERSONAL
    from fedotp.federation._controls import SHARED as SHARED
    from fedotp.federation._controls import ZERO_SHOT as ZERO_SHOT
    from fedotp.federation._controls import judge as judge
    from fedotp.federation._data import Features as Features
    from fedotp.federation._data import FederatedData as FederatedData
    from fedotp.federation._data import HeldFeatures as HeldFeatures
    from fedotp.federation._data import Images as Images
    from fedotp.federation._evaluation import Evaluation as Evaluation
    from fedotp.federation._evaluation import LocalTester as LocalTester
    from fedotp.federation._evaluation import Predictions as Predictions
    from fedotp.federation._evaluation import by_domain as by_domain
    from fedotp.federation._evaluation import evaluate_predictions as evaluate_predictions
    from fedotp.federation._hardware import client_bytes as client_bytes
    from fedotp.federation._hardware import n_threads as n_threads
    from fedotp.federation._hardware import prompt_lengths as prompt_lengths
    from fedotp.federation._hardware import using_threads as using_threads
    from fedotp.federation._joined import in_common as in_common
    from fedotp.federation._kept import KeptRows as KeptRows
    from fedotp.federation._local import LocalResult as LocalResult
    from fedotp.federation._local import LocalTrainer as LocalTrainer
    from fedotp.federation._local import LocalWork as LocalWork
    from fedotp.federation._local import OnImages as OnImages
    from fedotp.federation._metrics import METRICS as METRICS
    from fedotp.federation._metrics import Floats as Floats
    from fedotp.federation._metrics import Metric as Metric
    from fedotp.federation._metrics import percent as percent
    from fedotp.federation._noisy import sampling_rate as sampling_rate
    from fedotp.federation._predict import Predictor as Predictor
    from fedotp.federation._progress import Progress as Progress
    from fedotp.federation._progress import load_progress as load_progress
    from fedotp.federation._random import Ints as Ints
    from fedotp.federation._random import draws as draws
    from fedotp.federation._random import order as order
    from fedotp.federation._rule import Rule as Rule
    from fedotp.federation._rule import Updates as Updates
    from fedotp.federation._sampling import absent as absent
    from fedotp.federation._sampling import drawn_for_evaluation as drawn_for_evaluation
    from fedotp.federation._sampling import held_out as held_out
    from fedotp.federation._sampling import n_sampled as n_sampled
    from fedotp.federation._sampling import sampled as sampled
    from fedotp.federation._server_step import ServerStep as ServerStep
    from fedotp.federation._settings import VIEWS as VIEWS
    from fedotp.federation._settings import AttackSettings as AttackSettings
    from fedotp.federation._settings import ComputeSettings as ComputeSettings
    from fedotp.federation._settings import EvaluationSettings as EvaluationSettings
    from fedotp.federation._settings import OptimizerSettings as OptimizerSettings
    from fedotp.federation._settings import RoundSettings as RoundSettings
    from fedotp.federation._settings import ServerStepSettings as ServerStepSettings
    from fedotp.federation._settings import Settings as Settings
    from fedotp.federation._simulator import RoundReport as RoundReport
    from fedotp.federation._simulator import Simulator as Simulator
    from fedotp.federation._spent import images_epsilon as images_epsilon
    from fedotp.federation._spent import require_average as require_average
    from fedotp.federation._spent import steps_per_round as steps_per_round
    from fedotp.federation._steps import learning_rate as learning_rate
    from fedotp.federation._together import Together as Together
    from fedotp.federation._views import Novel as Novel
    from fedotp.federation._views import View as View

__getattr__, __dir__ = lazy_face(__name__)
