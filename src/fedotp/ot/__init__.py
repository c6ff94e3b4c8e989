"""Optimal transport between an image's patches and a class's prompts.

`solve` is the front door: see its docstring for the problem and the solvers. `score` goes from similarities to
matching scores, on CUDA in one kernel.
"""

from fedotp.ot._score import score
from fedotp.ot._solve import Kind, Method, Transport, solve

__all__ = ["Kind", "Method", "Transport", "score", "solve"]
