"""Runs: from a configuration to a directory with prompts and numbers, and back.

Each part is imported when it is first used: directories are listed and shown without torch.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.runs._columns import common_columns, n_bytes, numbers_of
    from fedotp.runs._controls import CONTROLS, Check, check_run, check_runs, open_checks
    from fedotp.runs._differences import Differences
    from fedotp.runs._directory import RunDirectory, find_runs, free_name, reading
    from fedotp.runs._live import STOPPING, EncodingBars, LiveDisplay, accuracy_text
    from fedotp.runs._loop import Loop, round_record
    from fedotp.runs._manifest import made_with
    from fedotp.runs._many import Engine, Local, run_many
    from fedotp.runs._observer import Observer, Observers
    from fedotp.runs._origin import MissingMethodError, Told, require_same_code
    from fedotp.runs._paired import SHARE, Difference, Pair, holm, interval, paired, points
    from fedotp.runs._prepare import (
        Prepared,
        encode_for,
        find_device,
        load_backbone,
        load_data,
        make_task,
        prepare,
        require_same,
        template_of,
    )
    from fedotp.runs._prompts import (
        StoredParameters,
        class_numbers,
        deployed_parameters,
        join,
        kept_by,
        stored_parameters,
    )
    from fedotp.runs._rounds import as_csv, read_value, rounds_of, summary_of_views
    from fedotp.runs._run import evaluate_run, make_simulator, restore, resume, run, see_run
    from fedotp.runs._table import VIEWS_NOTE, Row, Table, markdown
    from fedotp.runs._trackers import MLflow, TensorBoard, Tracker, WandB
    from fedotp.runs._trial_run import ManyObserver, Outcome, Update
    from fedotp.runs._trials import Trial, by_grid, by_method
    from fedotp.runs.cluster import RayCluster
    from fedotp.runs.leaving import (
        Plan,
        check_certificate,
        digests_of,
        forget,
        measure_plan,
        plan_value,
        read_certificate,
        run_plan,
    )

__all__ = [
    "CONTROLS",
    "SHARE",
    "STOPPING",
    "VIEWS_NOTE",
    "Check",
    "Difference",
    "Differences",
    "EncodingBars",
    "Engine",
    "LiveDisplay",
    "Local",
    "Loop",
    "MLflow",
    "ManyObserver",
    "MissingMethodError",
    "Observer",
    "Observers",
    "Outcome",
    "Pair",
    "Plan",
    "Prepared",
    "RayCluster",
    "Row",
    "RunDirectory",
    "StoredParameters",
    "Table",
    "TensorBoard",
    "Told",
    "Tracker",
    "Trial",
    "Update",
    "WandB",
    "accuracy_text",
    "as_csv",
    "by_grid",
    "by_method",
    "check_certificate",
    "check_run",
    "check_runs",
    "class_numbers",
    "common_columns",
    "deployed_parameters",
    "digests_of",
    "encode_for",
    "evaluate_run",
    "find_device",
    "find_runs",
    "forget",
    "free_name",
    "holm",
    "interval",
    "join",
    "kept_by",
    "load_backbone",
    "load_data",
    "made_with",
    "make_simulator",
    "make_task",
    "markdown",
    "measure_plan",
    "n_bytes",
    "numbers_of",
    "open_checks",
    "paired",
    "plan_value",
    "points",
    "prepare",
    "read_certificate",
    "read_value",
    "reading",
    "require_same",
    "require_same_code",
    "restore",
    "resume",
    "round_record",
    "rounds_of",
    "run",
    "run_many",
    "run_plan",
    "see_run",
    "stored_parameters",
    "summary_of_views",
    "template_of",
]

__getattr__, __dir__ = lazy_face(
    __name__,
    __all__,
    [
        "_directory",
        "_origin",
        "_columns",
        "_paired",
        "_controls",
        "_rounds",
        "_prompts",
        "_live",
        "_loop",
        "_manifest",
        "_many",
        "_observer",
        "_prepare",
        "_run",
        "_differences",
        "_table",
        "_trackers",
        "_trial_run",
        "_trials",
        "cluster",
        "leaving",
    ],
)
