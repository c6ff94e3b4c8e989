"""Three rounds of FedMGP against the paper's equations and against what its code does, client by client in float64.

The code was run by others and described in words: the restatement is of that description, with text prompts only.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
import torch
from golden import (
    ROUNDS,
    SEED,
    TOLERANCE,
    Restated,
    average,
    cross_entropy,
    exact_task,
    generator,
    golden_settings,
    pooled_scores,
    run_engine,
    text_features,
    unit,
)
from torch import Tensor
from toy_federation import TRAIN, kept_rows, make_data

from fedotp.methods import Task
from fedotp.methods._fedmgp import FedMGP


def words(task: Task) -> Tensor:
    return task.clip.token_embedding.weight.detach()[task.clip.tokenizer.encode("a photo of a")]


def start(task: Task, groups: int, vectors: int) -> list[Tensor]:
    """The embeddings of the first words and noise of deviation 0.01, drawn in float32 for all four words."""
    noise = 0.01 * torch.randn(groups, 4, 32, generator=torch.Generator().manual_seed(SEED))
    return [(words(task).float() + each)[:vectors].double() for each in noise]


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum() / one.norm() / other.norm()


@dataclass
class RestatedFedMGP(Restated):
    diversity: float = 1.0
    code: bool = False

    def objective(
        self, params: list[Tensor], received: list[Tensor], pooled: Tensor, tokens: Tensor, labels: Tensor
    ) -> Tensor:
        # In the code the words behind the vectors stay: "[v1][v2] of a name."
        rest = words(self.task)[len(params[0]) if self.code else 4 :]
        features = [text_features(self.task, torch.cat([P, rest])) for P in params]
        each = [cross_entropy(pooled_scores(pooled, tokens, [H]), labels) for H in features]
        if self.code:  # L1 distances of class features, which then are to fall
            pairs = [sum((unit(a) - unit(b)).abs().flatten()) / a.numel() for a, b in combinations(features, 2)]
        else:
            pairs = [cosine(one, other) for one, other in combinations(params, 2)]
        return sum(each) / len(each) + self.diversity * sum(pairs) / len(pairs)


def drawn(slots: list[Tensor], shared: list[Tensor], tau: float, n: int, draw: np.random.Generator) -> list[int]:
    """Slots one by one: the largest of what is left of log p + a Gumbel variable; p is even if nothing is shared."""
    weights = np.array([np.exp(max((float(cosine(P, G)) for G in shared), default=0) / tau) for P in slots])
    keys = np.log(weights / weights.sum()) + draw.gumbel(size=len(slots))
    left, found = list(range(len(slots))), []
    for _ in range(n):
        found.append(max(left, key=lambda slot: keys[slot]))
        left.remove(found[-1])
    return found


@pytest.mark.parametrize(
    ("groups", "vectors", "n", "diversity", "variant", "tau"),
    [
        (5, 2, 2, 1.0, "paper", 1.0),
        (4, 1, 3, 0.5, "paper", 0.1),
        (5, 2, 2, 1.0, "code", 1.0),
        (4, 1, 3, 5.0, "code", 0.1),
    ],
)
def test_three_rounds_of_fedmgp(groups: int, vectors: int, n: int, diversity: float, variant: str, tau: float) -> None:
    """Here clients have slots: those drawn are overwritten by what the server sends, in the order of the draw."""
    task, data = exact_task(), make_data()
    method = FedMGP(groups=groups, vectors=vectors, drawn=n, diversity=diversity, variant=variant, tau=tau)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    code = variant == "code"
    restated = RestatedFedMGP(task, data, pooled_scores, list, 0.6, diversity=diversity, code=code)
    first = start(task, groups, vectors)
    shared = first[:n]
    slots = [list(first) for _ in TRAIN]
    orders = [list(range(groups)) for _ in TRAIN]  # slots: those drawn first, the others where they stood
    for round_ in range(ROUNDS):
        clients, uploads = restated.sampled(round_), []
        for place, i in enumerate(clients):
            order = orders[i]
            for rank in range(n):
                slots[i][order[rank]] = shared[rank]
            params = [slots[i][slot].clone() for slot in order]
            loss = restated.train(round_, i, params, shared)
            assert reports[round_].loss[place] == pytest.approx(loss, abs=TOLERANCE)
            for slot, trained in zip(order, params, strict=True):
                slots[i][slot] = trained
            known = [] if code and round_ == 0 else shared  # in the code the first draw is even
            chosen = [order[at] for at in drawn(params, known, tau, n, generator("upload", round_, i))]
            uploads.append([slots[i][slot] for slot in chosen])
            came = [slot for slot in order[:n] if slot not in chosen]  # these take the places that have become free
            orders[i] = [*chosen, *(came.pop(0) if slot in chosen else slot for slot in order[n:])]
        for rank in range(n):
            ranked = [upload[rank] for upload in uploads]
            shared[rank] = sum(ranked) / len(ranked) if code else average(ranked, clients)
    torch.testing.assert_close(federation.server.params["shared"], torch.stack(shared), rtol=0, atol=TOLERANCE)
    own = torch.stack([torch.stack([slots[i][slot] for slot in orders[i][n:]]) for i in range(len(TRAIN))])
    torch.testing.assert_close(kept_rows(federation)["own"], own, rtol=0, atol=TOLERANCE)
    assert any(sorted(order[:n]) != list(range(n)) for order in orders)  # chance had a say
