"""Execution of many runs, side by side in this process or in several."""

from fedotp.runs.many._many import run_many as run_many
from fedotp.runs.many._trials import ManyObserver as ManyObserver
from fedotp.runs.many._trials import Outcome as Outcome
from fedotp.runs.many._trials import Trial as Trial
from fedotp.runs.many._trials import Update as Update
from fedotp.runs.many._trials import by_grid as by_grid
from fedotp.runs.many._trials import by_method as by_method
from fedotp.runs.many._trials import directory_name as directory_name
