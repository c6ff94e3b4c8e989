"""Optimal transport between an image's patches and a class's prompts.

`solve` documents the problem and the solvers. `score` computes matching scores from similarities, on CUDA in one
kernel.
"""

from fedotp.ot._graph import as_graph as as_graph
from fedotp.ot._score import batched_gradients as batched_gradients
from fedotp.ot._score import score as score
from fedotp.ot._solve import MASS as MASS
from fedotp.ot._solve import REG as REG
from fedotp.ot._solve import SOLVER as SOLVER
from fedotp.ot._solve import Rule as Rule
from fedotp.ot._solve import Solver as Solver
from fedotp.ot._solve import require_mass as require_mass
from fedotp.ot._solve import require_reg as require_reg
from fedotp.ot._solve import solve as solve
