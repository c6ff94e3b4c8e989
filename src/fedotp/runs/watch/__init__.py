"""Observers of a run: live displays and trackers of experiments."""

from fedotp.runs.watch._live import STOPPING as STOPPING
from fedotp.runs.watch._live import LiveDisplay as LiveDisplay
from fedotp.runs.watch._live import watched as watched
from fedotp.runs.watch._observer import Observer as Observer
from fedotp.runs.watch._observer import Observers as Observers
from fedotp.runs.watch._trackers import MLflow as MLflow
from fedotp.runs.watch._trackers import TensorBoard as TensorBoard
from fedotp.runs.watch._trackers import WandB as WandB
