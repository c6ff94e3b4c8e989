"""Optimal transport between an image's patches and a class's prompts.

`solve` is the front door: see its docstring for the problem and the solvers. `score` goes from similarities to
matching scores, on CUDA in one kernel.
"""

from fedotp.ot._graph import as_graph
from fedotp.ot._score import batched_gradients, score
from fedotp.ot._solve import MASS, REG, SOLVER, Rule, Solver, Transport, require_mass, require_reg, solve

__all__ = [
    "MASS",
    "REG",
    "SOLVER",
    "Rule",
    "Solver",
    "Transport",
    "as_graph",
    "batched_gradients",
    "require_mass",
    "require_reg",
    "score",
    "solve",
]
