"""Statistics of the transport plans of a run: their distance from uniform plans, and their effect on accuracy.

They refer to the plan T (V, N) of an image and its own class, V patches and N prompts, at a given mass gamma: its
columns sum to gamma / N each, its rows to at most 1 / V.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.federation import Simulator
from fedotp.matching import Matching
from fedotp.methods import Kind
from fedotp.report._client import MASSES, ClientImages, at_mass, choose, require_clients, rounded
from fedotp.report._maps import normalised
from fedotp.report.figure import COLOURS, MARKERS, bare, new_figure
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import Prepared, restore

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLIENTS = 8
_IMAGES = 256  # in total

UNASSIGNED_BELOW = 0.1
"""A patch with less than this multiple of its mass in the uniform plan counts as unassigned."""


def plan_entropy(plan: Tensor) -> Tensor:
    """Return the entropy of each column of plans (..., V, N), normalised to sum 1, over log V: (..., N).

    1 is the uniform plan; 0 is a prompt that looks at one patch only.
    """
    return torch.special.entr(normalised(plan.double())).sum(-2) / math.log(max(plan.shape[-2], 2))


def unassigned_share(plan: Tensor) -> Tensor:
    """Return the share of unassigned patches of plans (..., V, N): (...).

    A patch is unassigned if its row sums to less than `UNASSIGNED_BELOW` of the uniform share gamma / V.
    """
    rows = plan.sum(-1)  # (..., V)
    return (rows < UNASSIGNED_BELOW * rows.mean(-1, keepdim=True)).double().mean(-1)


def plan_overlap(plan: Tensor, n_shared: int) -> Tensor:
    """Return the overlap of the global prompts of plans (..., V, N), the first `n_shared`, with the local ones: (...).

    sum_m min(T_mg, T_ml) of the columns normalised to sum 1, a mean over pairs (g, l): 1 if they are the same, 0 if
    they share no patch.
    """
    columns = normalised(plan.double())
    both = torch.minimum(columns[..., :n_shared].unsqueeze(-1), columns[..., n_shared:].unsqueeze(-2))
    return both.sum(-3).mean((-2, -1))  # from (..., V, N_g, N_l)


@dataclass(frozen=True)
class PlanStatistics:
    """Plans at several masses, all means over images; accuracies are means over clients.

    Attributes:
        masses: (G,) compared masses; the prompts are those of the run, trained at `mass_trained`.
        prompts: (N,) "global" or "local".
        entropy: (N, G) `plan_entropy`.
        unassigned: (G,) `unassigned_share`.
        overlap: (G,) `plan_overlap`; None without both kinds of prompts.
        accuracy: (G,) at these masses.
        accuracy_uniform: with the uniform plan and the same prompts.
        accuracy_trained: with the rule and mass of the run.
        changed_uniform: share of the images with another predicted class under the uniform plan.
        mass_trained: the run's mass; None if its rule has no plan.
    """

    masses: tuple[float, ...]
    prompts: tuple[str, ...]
    entropy: tuple[tuple[float, ...], ...]
    unassigned: tuple[float, ...]
    overlap: tuple[float, ...] | None
    accuracy: tuple[float, ...]
    accuracy_uniform: float
    accuracy_trained: float
    changed_uniform: float
    mass_trained: float | None
    n_images: int
    n_clients: int

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {**{key: rounded(value) for key, value in vars(self).items()}, "uniform_entropy": 1.0}

    def plot(self, title: str) -> "Figure":
        """Plot entropy of the plans, unassigned patches, overlap, and accuracy against the mass.

        The band around the accuracy with the uniform plan is one standard error.
        """
        figure = new_figure(10.5, 3.3)
        spread, use, accuracy = figure.subplots(1, 3)
        for n, kind in enumerate(self.prompts):
            spread.plot(self.masses, self.entropy[n], color=COLOURS[n], marker=MARKERS[n], label=f"{kind} prompt")
        spread.axhline(1, color="#555555", linestyle="--", linewidth=1, label="uniform plan")
        spread.set_title("Entropy of a prompt's plan / log V", fontsize=9, loc="left")
        use.plot(self.masses, self.unassigned, color=COLOURS[2], marker=MARKERS[2], label="unassigned patches")
        if self.overlap is not None:
            use.plot(self.masses, self.overlap, color=COLOURS[3], marker=MARKERS[3], label="overlap, global and local")
        use.set_title("Shares", fontsize=9, loc="left")
        for axes in (spread, use):
            axes.set_ylim(-0.03, 1.06)
        _plot_accuracy(accuracy, self)
        for axes in (spread, use, accuracy):
            axes.set_xlabel("mass γ")
            axes.set_xticks(self.masses)
            bare(axes)
            axes.legend(frameon=False, fontsize=8, loc="best")
        figure.suptitle(title, fontsize=10)
        return figure


def plan_statistics(
    run: str | Path | RunDirectory, masses: Sequence[float] = MASSES, clients: Sequence[str] | None = None
) -> PlanStatistics:
    """Measure the plans of a run on at most 256 test images of `clients` (default: 8, evenly spread).

    Each client contributes the same number of images, if it has them, its classes in turn.
    """
    directory = RunDirectory.open(run)
    method = directory.config.method
    if not method.matching.has_plan:
        raise FedotpError(f"{directory.path} is a run of {method.title}, which has no transport plan")
    if clients is not None:
        require_clients(directory, clients)
    return plans_of(*restore(directory.path), masses, clients)


def plans_of(
    prepared: Prepared, simulator: Simulator, masses: Sequence[float], clients: Sequence[str] | None = None
) -> PlanStatistics:
    """Measure the plans of a restored run."""
    chosen = choose(prepared, clients, _CLIENTS)
    if not chosen:
        raise FedotpError("no plans: none of the clients has a test image")
    each = max(1, _IMAGES // len(chosen))
    images = [ClientImages.of(prepared, simulator, client, each) for client in chosen]
    return measure_plans(images, masses)


def measure_plans(clients: Sequence[ClientImages], masses: Sequence[float]) -> PlanStatistics:
    """Measure the plans of the images of several clients."""
    matching, kinds = clients[0].predictor.matching, clients[0].predictor.kinds
    rules = [at_mass(matching, mass) for mass in masses]
    own = [part.own_similarity() for client in clients for part in client.parts()]  # (n, V, N) each
    parts = [part for client in clients for part in client.parts()]
    plans = [torch.cat([part.plan(x, rule) for part, x in zip(parts, own, strict=True)]) for rule in rules]
    global_, local = ([n for n, kind in enumerate(kinds) if kind == side] for side in (Kind.GLOBAL, Kind.LOCAL))

    def overlap(plan: Tensor) -> Tensor:
        return plan_overlap(plan[..., global_ + local], len(global_))

    entropy = torch.stack([plan_entropy(plan).mean(0) for plan in plans], -1)  # (N, G)
    uniform = replace(matching, rule="average")
    return PlanStatistics(
        masses=tuple(masses),
        prompts=kinds,
        entropy=tuple(map(tuple, entropy.tolist())),
        unassigned=_means(unassigned_share, plans),
        overlap=_means(overlap, plans) if global_ and local else None,
        accuracy=tuple(_accuracy(each, clients) for each in rules),
        accuracy_uniform=_accuracy(uniform, clients),
        accuracy_trained=_accuracy(None, clients),
        changed_uniform=float((_predicted(uniform, clients) != _predicted(None, clients)).double().mean()),
        mass_trained=matching.mass if matching.has_mass else 1.0 if matching.rule == "classical" else None,
        n_images=len(plans[0]),
        n_clients=len(clients),
    )


def _means(measure: Callable[[Tensor], Tensor], plans: Sequence[Tensor]) -> tuple[float, ...]:
    return tuple(float(measure(plan).mean()) for plan in plans)


def _predicted(matching: Matching | None, clients: Sequence[ClientImages]) -> Tensor:
    return torch.cat([part.predicted(matching) for client in clients for part in client.parts()])


def _accuracy(matching: Matching | None, clients: Sequence[ClientImages]) -> float:
    shares = [(_predicted(matching, [client]) == client.labels).double().mean() for client in clients]
    return float(torch.stack(shares).mean())


def _plot_accuracy(axes: "Axes", shown: PlanStatistics) -> None:
    uniform = 100 * shown.accuracy_uniform
    error = 100 * np.sqrt(shown.accuracy_uniform * (1 - shown.accuracy_uniform) / shown.n_images)
    accuracy = 100 * np.array(shown.accuracy)
    axes.axhspan(uniform - error, uniform + error, color="#555555", alpha=0.12, linewidth=0)
    axes.axhline(uniform, color="#555555", linestyle="--", linewidth=1, label="uniform plan, ± 1 s.e.")
    axes.plot(shown.masses, accuracy, color=COLOURS[0], marker=MARKERS[0], label="mass changed")
    if shown.mass_trained is not None:
        point = 100 * shown.accuracy_trained
        axes.plot([shown.mass_trained], [point], "*", color=COLOURS[1], markersize=13, label="as trained")
    middle = (min(accuracy.min(), uniform) + max(accuracy.max(), uniform)) / 2
    reach = max(2.5, float(max(np.abs(accuracy - middle).max(), abs(uniform - middle))) * 1.6)
    axes.set_ylim(middle - reach, min(middle + reach, 100.4))
    axes.set_title("Accuracy, %, same prompts", fontsize=9, loc="left")
