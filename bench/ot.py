"""Transport on the CPU: 3,200 problems of 196 patches x 2 prompts, mass 0.8.

Two comparisons, as ratios of medians measured in turn:

- at reg 0.1, in float32, `solve` against the formulation of the authors' code (products with diagonal matrices,
  patch-major, one stopping test for the whole batch), restated here;
- at reg 0.01, Newton against scaling iterations, each run just far enough for an accuracy of 1e-6: of every entry
  in float32, and of every plan relative to its norm in float64.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bench._record import medians
from fedotp.matching import similarity
from fedotp.ot import solve

Accurate = Callable[[Tensor, Tensor], bool]

PROBLEMS, PATCHES, PROMPTS, MASS = 3200, 196, 2, 0.8
ACCURACY = 1e-6


def cannot_run() -> str | None:
    return None


def run() -> dict[str, float]:
    torch.manual_seed(0)
    cost = costs()
    exact = {reg: solve(cost.double(), reg=reg, mass=MASS, tol=1e-12).plan for reg in (0.1, 0.01)}

    def error(plan: Tensor, reg: float) -> float:
        return float((plan.double() - exact[reg]).abs().max())

    seconds = medians(
        {
            "reference": lambda: reference(cost, 0.1),
            "lean": lambda: lean_reference(cost, 0.1),
            "newton": lambda: solve(cost, reg=0.1, mass=MASS),
        }
    )
    figures = {
        "reg 0.1: reference formulation, ms": 1e3 * seconds["reference"],
        "reg 0.1: solve, ms": 1e3 * seconds["newton"],
        "reg 0.1: reference formulation / solve": seconds["reference"] / seconds["newton"],
        "reg 0.1: the same without diagonal matrices / solve": seconds["lean"] / seconds["newton"],
        "reg 0.1: plan error, reference formulation": error(reference(cost, 0.1), 0.1),
        "reg 0.1: plan error, solve": error(solve(cost, reg=0.1, mass=MASS).plan, 0.1),
    }

    figures |= compare("reg 0.01, entries to 1e-6, float32", cost, exact[0.01], entries_accurate)
    return figures | compare("reg 0.01, relative 1e-6, float64", cost.double(), exact[0.01], relatively_accurate)


def compare(title: str, cost: Tensor, exact: Tensor, accurate: Accurate) -> dict[str, float]:
    """Newton and scaling iterations, each run just far enough to be accurate."""
    newton_tol = next(tol for tol in TOLERANCES if accurate(newton(cost, tol), exact))
    log_tol = next(tol for tol in TOLERANCES if accurate(log_scaling(cost, tol), exact))
    steps = scaling_steps(cost, exact, accurate)
    seconds = medians(
        {
            "newton": lambda: newton(cost, newton_tol),
            "log": lambda: log_scaling(cost, log_tol),
            "scaling": lambda: scaling(cost, 0.01, steps),
        }
    )
    return {
        f"{title}: Newton, ms": 1e3 * seconds["newton"],
        f"{title}: scaling, ms": 1e3 * seconds["scaling"],
        f"{title}: scaling, iterations": steps,
        f"{title}: log-domain scaling, ms": 1e3 * seconds["log"],
        f"{title}: scaling / Newton": seconds["scaling"] / seconds["newton"],
        f"{title}: log-domain scaling / Newton": seconds["log"] / seconds["newton"],
    }


TOLERANCES = tuple(10.0 ** -(n / 2) for n in range(6, 25))


def entries_accurate(plan: Tensor, exact: Tensor) -> bool:
    """Whether every entry of every plan is within ACCURACY of the exact one."""
    return bool(((plan - exact).abs() <= ACCURACY).all())


def relatively_accurate(plan: Tensor, exact: Tensor) -> bool:
    """Whether every plan is within ACCURACY of the exact one, relative to its norm: some 300 times stricter."""
    return bool(((plan - exact).norm(dim=(-2, -1)) <= ACCURACY * exact.norm(dim=(-2, -1))).all())


def newton(cost: Tensor, tol: float) -> Tensor:
    return solve(cost, reg=0.01, mass=MASS, tol=tol).plan


def log_scaling(cost: Tensor, tol: float) -> Tensor:
    return solve(cost, reg=0.01, mass=MASS, solver="log", tol=tol, max_iter=5000).plan


def costs() -> Tensor:
    """Cosine distances of random features of width 512, 32 images against 100 classes.

    The two prompts of a class resemble each other (cosine 0.8), as global and local prompts do.
    """
    patches = torch.randn(1, 32, PATCHES, 512)
    prompts = torch.randn(1, 1, 100, 512) + 0.5 * torch.randn(1, PROMPTS, 100, 512)
    return 1 - similarity(patches, prompts).reshape(PROBLEMS, PATCHES, PROMPTS).mT.contiguous().mT


def reference(cost: Tensor, reg: float) -> Tensor:
    """Algorithm 1 as the authors' code forms it: marginals and scalings enter as products with diagonal matrices."""
    n_problems, n_patches, n_prompts = cost.shape
    a, b = torch.full((n_problems, n_patches), 1 / n_patches), torch.full((n_problems, n_prompts), MASS / n_prompts)
    Q = torch.exp(-cost / reg)
    u, v = algorithm_1(torch.diag_embed(1 / a) @ Q, torch.diag_embed(1 / b) @ Q.mT)  # (P, V, V) @ (P, V, N)
    return torch.diag_embed(u.squeeze(-1)) @ Q @ torch.diag_embed(v.squeeze(-1))


def lean_reference(cost: Tensor, reg: float) -> Tensor:
    """The same iterations without diagonal matrices: what of the reference's time is their doing."""
    Q = torch.exp(-cost / reg)
    u, v = algorithm_1(Q * PATCHES, Q.mT * (PROMPTS / MASS))
    return u * Q * v.mT


def algorithm_1(Qa: Tensor, Qb: Tensor) -> tuple[Tensor, Tensor]:
    """At most 100 iterations, ended for the whole batch when mean |v - v_prev| < 1e-3: u (P, V, 1), v (P, N, 1)."""
    u, v = Qa.new_ones(*Qa.shape[:2], 1), Qa.new_ones(*Qb.shape[:2], 1)
    for _ in range(100):
        previous = v
        u = (1 / (Qa @ v)).clamp_max(1)
        v = 1 / (Qb @ u)
        if (v - previous).abs().mean() < 1e-3:
            break
    return u, v


def scaling(cost: Tensor, reg: float, steps: int) -> Tensor:
    """The same iteration at its best: prompt-major memory in pieces that fit the cache, a fixed number of steps."""
    a, b = 1 / PATCHES, MASS / PROMPTS
    plans = []
    for part in cost.split(640):
        Q = torch.exp((part.amin(1, keepdim=True) - part).mT.contiguous() / reg)  # (P, N, V), column maximum 1
        v = b / Q.sum(-1, keepdim=True)  # (P, N, 1)
        for _ in range(steps):
            u = (a / (Q * v).sum(1, keepdim=True)).clamp_max(1)  # (P, 1, V)
            v = b / (Q * u).sum(-1, keepdim=True)
        plans.append((u * Q * v).mT)
    return torch.cat(plans)


def scaling_steps(cost: Tensor, exact: Tensor, accurate: Accurate) -> int:
    """How many scaling iterations the worst problem needs, to one part in twenty."""
    steps = 20
    while not accurate(scaling(cost, 0.01, steps), exact):
        steps = int(1.05 * steps) + 1
        if steps > 10_000:
            raise RuntimeError("scaling does not reach the accuracy")
    return steps
