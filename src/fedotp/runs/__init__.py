"""Runs: from a configuration to a directory with prompts and numbers, and back.

Each part is imported when it is first used: directories are listed and shown without torch.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.runs._columns import common_columns as common_columns
    from fedotp.runs._columns import n_bytes as n_bytes
    from fedotp.runs._columns import numbers_of as numbers_of
    from fedotp.runs._controls import CONTROLS as CONTROLS
    from fedotp.runs._controls import Check as Check
    from fedotp.runs._controls import check_run as check_run
    from fedotp.runs._controls import check_runs as check_runs
    from fedotp.runs._controls import open_checks as open_checks
    from fedotp.runs._differences import Differences as Differences
    from fedotp.runs._directory import RunDirectory as RunDirectory
    from fedotp.runs._directory import find_runs as find_runs
    from fedotp.runs._directory import free_name as free_name
    from fedotp.runs._directory import reading as reading
    from fedotp.runs._live import STOPPING as STOPPING
    from fedotp.runs._live import EncodingBars as EncodingBars
    from fedotp.runs._live import LiveDisplay as LiveDisplay
    from fedotp.runs._live import accuracy_text as accuracy_text
    from fedotp.runs._loop import Loop as Loop
    from fedotp.runs._loop import round_record as round_record
    from fedotp.runs._manifest import made_with as made_with
    from fedotp.runs._many import Engine as Engine
    from fedotp.runs._many import Local as Local
    from fedotp.runs._many import run_many as run_many
    from fedotp.runs._observer import Observer as Observer
    from fedotp.runs._observer import Observers as Observers
    from fedotp.runs._origin import MissingMethodError as MissingMethodError
    from fedotp.runs._origin import Told as Told
    from fedotp.runs._origin import require_same_code as require_same_code
    from fedotp.runs._paired import SHARE as SHARE
    from fedotp.runs._paired import Difference as Difference
    from fedotp.runs._paired import Pair as Pair
    from fedotp.runs._paired import holm as holm
    from fedotp.runs._paired import interval as interval
    from fedotp.runs._paired import paired as paired
    from fedotp.runs._paired import points as points
    from fedotp.runs._prepare import Prepared as Prepared
    from fedotp.runs._prepare import encode_for as encode_for
    from fedotp.runs._prepare import find_device as find_device
    from fedotp.runs._prepare import load_backbone as load_backbone
    from fedotp.runs._prepare import load_data as load_data
    from fedotp.runs._prepare import make_task as make_task
    from fedotp.runs._prepare import prepare as prepare
    from fedotp.runs._prepare import require_same as require_same
    from fedotp.runs._prepare import template_of as template_of
    from fedotp.runs._prompts import StoredParameters as StoredParameters
    from fedotp.runs._prompts import class_numbers as class_numbers
    from fedotp.runs._prompts import deployed_parameters as deployed_parameters
    from fedotp.runs._prompts import join as join
    from fedotp.runs._prompts import kept_by as kept_by
    from fedotp.runs._prompts import stored_parameters as stored_parameters
    from fedotp.runs._rounds import as_csv as as_csv
    from fedotp.runs._rounds import read_value as read_value
    from fedotp.runs._rounds import rounds_of as rounds_of
    from fedotp.runs._rounds import summary_of_views as summary_of_views
    from fedotp.runs._run import evaluate_run as evaluate_run
    from fedotp.runs._run import make_simulator as make_simulator
    from fedotp.runs._run import restore as restore
    from fedotp.runs._run import resume as resume
    from fedotp.runs._run import run as run
    from fedotp.runs._run import see_run as see_run
    from fedotp.runs._table import VIEWS_NOTE as VIEWS_NOTE
    from fedotp.runs._table import Row as Row
    from fedotp.runs._table import Table as Table
    from fedotp.runs._table import markdown as markdown
    from fedotp.runs._trackers import MLflow as MLflow
    from fedotp.runs._trackers import TensorBoard as TensorBoard
    from fedotp.runs._trackers import Tracker as Tracker
    from fedotp.runs._trackers import WandB as WandB
    from fedotp.runs._trial_run import ManyObserver as ManyObserver
    from fedotp.runs._trial_run import Outcome as Outcome
    from fedotp.runs._trial_run import Update as Update
    from fedotp.runs._trials import Trial as Trial
    from fedotp.runs._trials import by_grid as by_grid
    from fedotp.runs._trials import by_method as by_method
    from fedotp.runs.cluster import RayCluster as RayCluster
    from fedotp.runs.leaving import Plan as Plan
    from fedotp.runs.leaving import check_certificate as check_certificate
    from fedotp.runs.leaving import digests_of as digests_of
    from fedotp.runs.leaving import forget as forget
    from fedotp.runs.leaving import measure_plan as measure_plan
    from fedotp.runs.leaving import plan_value as plan_value
    from fedotp.runs.leaving import read_certificate as read_certificate
    from fedotp.runs.leaving import run_plan as run_plan

__getattr__, __dir__ = lazy_face(__name__)
