"""t-SNE of the clients' private prompts (the paper's Figure A5)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedotp.data import coarse_labels
from fedotp.errors import FedotpError
from fedotp.methods import Kind
from fedotp.report._client import Floats
from fedotp.report.figure import COLOURS, MARKERS, new_figure
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import StoredParameters, load_backbone, make_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEWEST = 5
_PERPLEXITY = 30.0  # the usual default


@dataclass(frozen=True, eq=False)
class Projection:
    """The private prompts of n clients in the plane.

    x, y (n,); `client` (n,) their names; `group` (n,) their colours, by the criterion `by`: "domain", "coarse label" or
    "most frequent class". `together` is the share of clients whose nearest prompt, by Euclidean distance and not in the
    plane, is of the same group; `by_chance` is its expectation for random prompts.
    """

    x: Floats
    y: Floats
    client: tuple[str, ...]
    group: tuple[str, ...]
    by: str
    perplexity: float
    together: float
    by_chance: float

    def plot(self) -> "Figure":
        """Plot one point per client, groups by colour and shape (the paper's Figure A5)."""
        groups = sorted(set(self.group))
        figure = new_figure(6.4 if len(groups) <= 12 else 7.6, 4.4)
        axes = figure.add_subplot()
        for i, group in enumerate(groups):
            mine = np.array([name == group for name in self.group])
            axes.scatter(
                self.x[mine],
                self.y[mine],
                s=46,
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[(i // len(COLOURS) + i) % len(MARKERS)],
                edgecolors="white",
                linewidths=0.5,
                label=group,
            )
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", adjustable="datalim")
        axes.spines[:].set_color("#cccccc")
        note = (
            f"Private prompts of {len(self.x)} clients; t-SNE, perplexity {self.perplexity:.3g}\n"
            f"nearest prompt of the same group: {self.together:.0%} of the clients, by chance {self.by_chance:.0%}"
        )
        axes.set_title(note, fontsize=9, loc="left")
        axes.legend(
            title=self.by, title_fontsize=9, fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5)
        )
        return figure


def project_prompts(run: str | Path | RunDirectory) -> Projection:
    """Compute the t-SNE of the private prompts of a run, one vector per client, without its data.

    Perplexity is 30, or (n - 1) / 3 for n clients if that is less. Distances between groups mean little in a t-SNE;
    with few clients, groups mean little, too.
    """
    directory = RunDirectory.open(run)
    stored = StoredParameters.of(directory)
    n = len(stored.clients)
    prompts = _private_prompts(directory, stored) if n >= _FEWEST else {}
    if not prompts:
        has = n if 0 < n < _FEWEST else "none"
        raise FedotpError(f"no t-SNE: at least {_FEWEST} clients with private prompts are required, this run has {has}")
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise FedotpError("t-SNE needs scikit-learn: pip install 'fedotp[report]'") from error
    flat = [torch.cat([context.double().flatten() for context in contexts]) for contexts in prompts.values()]
    vectors = torch.stack(flat).cpu().numpy()
    perplexity = min(_PERPLEXITY, (n - 1) / 3)
    plane = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(vectors).astype(np.float64)
    names = directory.manifest["clients"]
    by, everyones = client_groups(directory)
    groups = tuple(everyones[names.index(client)] for client in prompts)
    together, by_chance = neighbours(vectors, groups)
    return Projection(
        x=plane[:, 0],
        y=plane[:, 1],
        client=tuple(prompts),
        group=groups,
        by=by,
        perplexity=perplexity,
        together=together,
        by_chance=by_chance,
    )


def _private_prompts(run: RunDirectory, stored: StoredParameters) -> dict[str, list[Tensor]]:
    """Return the private contexts (s, d) or (K, s, d) by client, before fine-tuning."""
    config, manifest = run.config, run.manifest
    clip = load_backbone(config.backbone.source, config.compute.device)
    run.require_same("backbone", config.backbone.name, clip.digest)
    method, task = config.method, make_task(config, clip, manifest["data"]["classes"], manifest["template"])
    found: dict[str, list[Tensor]] = {}
    for number in stored.clients.tolist():
        params = stored.deployed(method, task, stored.kept_by(method, task, number), number)
        own = [each for each in method.prompts(task, params) if each.kind not in (Kind.GLOBAL, Kind.OTHERS)]
        contexts = [context for each in own if each.context is not None for context in each.context[0]]
        found |= {manifest["clients"][number]: contexts} if contexts else {}
    return found


def neighbours(vectors: Floats, groups: Sequence[str]) -> tuple[float, float]:
    """Return the share of `vectors` (n, d) whose nearest neighbour is of the same group, and that by chance."""
    same = np.array(groups)[:, None] == np.array(groups)
    distances = torch.cdist(torch.from_numpy(vectors), torch.from_numpy(vectors)).fill_diagonal_(torch.inf)
    found = same[np.arange(len(vectors)), distances.argmin(1).numpy()].mean()
    return float(found), float((same.sum() - len(vectors)) / (len(vectors) * (len(vectors) - 1)))


def client_groups(run: RunDirectory) -> tuple[str, list[str]]:
    """Return a criterion and each client's group: its domain, else its most frequent coarse label, else class.

    Labels are those of the client's test images.
    """
    domains = run.manifest["domains"]
    if any(domains):
        return "domain", [domain or "mixed" for domain in domains]
    data = run.manifest["data"]
    coarse = coarse_labels(data["classes"])
    names = coarse or data["classes"]
    if not run.is_complete:
        raise FedotpError("no t-SNE yet: it needs predictions, which are written at the end of a run")
    predictions = run.predictions()
    groups = []
    for client in range(len(domains)):
        counts = Counter(names[label] for label in predictions.label[predictions.client == client])
        groups.append(min(counts, key=lambda name: (-counts[name], names.index(name))) if counts else "no test images")
    return "coarse label" if coarse else "most frequent class", groups
