"""Many runs: which ones, side by side in this process, in several processes, or on a Ray cluster."""

from fedotp.runs.many._cluster import RayCluster as RayCluster
from fedotp.runs.many._many import Engine as Engine
from fedotp.runs.many._many import Local as Local
from fedotp.runs.many._many import run_many as run_many
from fedotp.runs.many._trials import ManyObserver as ManyObserver
from fedotp.runs.many._trials import Outcome as Outcome
from fedotp.runs.many._trials import Trial as Trial
from fedotp.runs.many._trials import Update as Update
from fedotp.runs.many._trials import by_grid as by_grid
from fedotp.runs.many._trials import by_method as by_method
from fedotp.runs.many._trials import directory_name as directory_name
