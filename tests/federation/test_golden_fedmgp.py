"""Three rounds of FedMGP against its equations, client by client in float64, each with slots that are overwritten."""

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
)
from torch import Tensor
from toy_federation import TRAIN, kept_rows, make_data

from fedotp.methods import FedMGP, Task


def start(task: Task, groups: int, vectors: int) -> list[Tensor]:
    """The embeddings of the first words and noise of deviation 0.01, drawn in float32 for all four words."""
    words = task.clip.token_embedding.weight.detach()[task.clip.tokenizer.encode("a photo of a")].float()
    noise = 0.01 * torch.randn(groups, 4, 32, generator=torch.Generator().manual_seed(SEED))
    return [(words + each)[:vectors].double() for each in noise]


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum() / one.norm() / other.norm()


@dataclass
class RestatedFedMGP(Restated):
    diversity: float = 1.0

    def objective(
        self, params: list[Tensor], received: list[Tensor], pooled: Tensor, tokens: Tensor, labels: Tensor
    ) -> Tensor:
        each = [cross_entropy(pooled_scores(pooled, tokens, [text_features(self.task, P)]), labels) for P in params]
        pairs = [cosine(one, other) for one, other in combinations(params, 2)]
        return sum(each) / len(each) + self.diversity * sum(pairs) / len(pairs)


def drawn(slots: list[Tensor], shared: list[Tensor], tau: float, n: int, draw: np.random.Generator) -> list[int]:
    """Slots, one after the other: the largest of what is left of log p + a Gumbel variable."""
    weights = np.array([np.exp(max(float(cosine(P, G)) for G in shared) / tau) for P in slots])
    keys = np.log(weights / weights.sum()) + draw.gumbel(size=len(slots))
    left, found = list(range(len(slots))), []
    for _ in range(n):
        found.append(max(left, key=lambda slot: keys[slot]))
        left.remove(found[-1])
    return found


@pytest.mark.parametrize(
    ("groups", "vectors", "n", "diversity", "sign", "tau"),
    [(5, 2, 2, 1.0, "paper", 1.0), (4, 1, 3, 0.5, "code", 0.1)],
)
def test_three_rounds_of_fedmgp(groups: int, vectors: int, n: int, diversity: float, sign: str, tau: float) -> None:
    """Here clients have slots: those drawn are overwritten by what the server sends, in the order of the draw."""
    task, data = exact_task(), make_data()
    method = FedMGP(groups=groups, vectors=vectors, drawn=n, diversity=diversity, sign=sign, tau=tau)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    signed = diversity if sign == "paper" else -diversity
    restated = RestatedFedMGP(task, data, pooled_scores, list, 0.6, diversity=signed)
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
            chosen = [order[at] for at in drawn(params, shared, tau, n, generator("upload", round_, i))]
            uploads.append([slots[i][slot] for slot in chosen])
            came = [slot for slot in order[:n] if slot not in chosen]  # these take the places that have become free
            orders[i] = [*chosen, *(came.pop(0) if slot in chosen else slot for slot in order[n:])]
        shared = [average([upload[rank] for upload in uploads], clients) for rank in range(n)]
    torch.testing.assert_close(federation.server["shared"], torch.stack(shared), rtol=0, atol=TOLERANCE)
    own = torch.stack([torch.stack([slots[i][slot] for slot in orders[i][n:]]) for i in range(len(TRAIN))])
    torch.testing.assert_close(kept_rows(federation)["own"], own, rtol=0, atol=TOLERANCE)
    assert any(sorted(order[:n]) != list(range(n)) for order in orders)  # chance had a say
