"""Run an iteration on many problems at once, each to its own end."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedotp.ot._problem import Problem

State = tuple[Tensor, ...]
Step = Callable[[Problem, State], tuple[State, Tensor]]


def iterate(step: Step, problem: Problem, state: State, max_iter: int) -> tuple[Tensor, Tensor]:
    """Apply `step` until every problem is done.

    `step(problem, state)` returns the next state and which problems are done (P,). The first tensor of a state
    is the iterate f (P, N). A problem's result is the one of the step in which it was done, however long its
    neighbours go on; finished problems are dropped from the computation as soon as they are half of it.

    Returns:
        f (P, N) and the number of steps each problem took (P,); `max_iter` where it never was done.
    """
    f = state[0].clone()
    steps = torch.full((len(problem),), max_iter, device=f.device)
    index = torch.arange(len(problem), device=f.device)
    open_ = torch.ones_like(index, dtype=torch.bool)
    for n in range(1, max_iter + 1):
        state, done = step(problem, state)
        ending = open_ & done if n < max_iter else open_
        f[index[ending]] = state[0][ending]
        steps[index[ending]] = n
        open_ = open_ & ~ending
        left = int(open_.sum())
        if left == 0:
            break
        if left <= len(open_) // 2:
            keep = open_.nonzero().squeeze(1)
            problem, index, open_ = problem.take(keep), index[keep], open_[keep]
            state = tuple(x[keep] for x in state)
    return f, steps
