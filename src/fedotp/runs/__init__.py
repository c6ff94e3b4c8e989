"""Runs: from a configuration to a directory with prompts and numbers, and back."""

from fedotp.runs._directory import RunDirectory, find_runs, free_name, reading
from fedotp.runs._join import join
from fedotp.runs._many import run_many
from fedotp.runs._observer import Observer, Observers
from fedotp.runs._parameters import StoredParameters, stored_parameters
from fedotp.runs._prepare import Prepared, prepare
from fedotp.runs._run import evaluate_run, make_simulator, restore, resume, run
from fedotp.runs._table import Table
from fedotp.runs._tensorboard import TensorBoard
from fedotp.runs._trial_run import ManyObserver, Outcome, Update
from fedotp.runs._trials import Trial, by_grid, by_method

__all__ = [
    "ManyObserver",
    "Observer",
    "Observers",
    "Outcome",
    "Prepared",
    "RunDirectory",
    "StoredParameters",
    "Table",
    "TensorBoard",
    "Trial",
    "Update",
    "by_grid",
    "by_method",
    "evaluate_run",
    "find_runs",
    "free_name",
    "join",
    "make_simulator",
    "prepare",
    "reading",
    "restore",
    "resume",
    "run",
    "run_many",
    "stored_parameters",
]
