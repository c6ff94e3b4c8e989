"""Federations: rounds, sampling, local training along the client axis, aggregation, evaluation, checkpoints."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.federation._checkpoint import Checkpoint as Checkpoint
    from fedotp.federation._data import Backdoor as Backdoor
    from fedotp.federation._data import Features as Features
    from fedotp.federation._data import FederatedData as FederatedData
    from fedotp.federation._data import HeldFeatures as HeldFeatures
    from fedotp.federation._data import Images as Images
    from fedotp.federation._data import Novel as Novel
    from fedotp.federation._data import OnImages as OnImages
    from fedotp.federation._data import log_frequencies as log_frequencies
    from fedotp.federation._hardware import client_bytes as client_bytes
    from fedotp.federation._hardware import n_threads as n_threads
    from fedotp.federation._hardware import prompt_lengths as prompt_lengths
    from fedotp.federation._hardware import using_threads as using_threads
    from fedotp.federation._metrics import METRICS as METRICS
    from fedotp.federation._metrics import Metric as Metric
    from fedotp.federation._progress import Progress as Progress
    from fedotp.federation._progress import RoundReport as RoundReport
    from fedotp.federation._sampling import Ints as Ints
    from fedotp.federation._sampling import RoundSettings as RoundSettings
    from fedotp.federation._sampling import draws as draws
    from fedotp.federation._settings import AttackSettings as AttackSettings
    from fedotp.federation._settings import ComputeSettings as ComputeSettings
    from fedotp.federation._settings import EvaluationSettings as EvaluationSettings
    from fedotp.federation._settings import OptimizerSettings as OptimizerSettings
    from fedotp.federation._settings import ServerStepSettings as ServerStepSettings
    from fedotp.federation._settings import Settings as Settings
    from fedotp.federation._settings import rounds_of as rounds_of
    from fedotp.federation._simulator import Simulator as Simulator

__getattr__, __dir__ = lazy_face(__name__)
