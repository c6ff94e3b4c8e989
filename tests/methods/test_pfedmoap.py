"""What pFedMoAP promises beyond its golden test: who is sent whose prompts, and what experts may change."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from federation.toy_federation import draw, simulator
from fedotp.clip import CLIP, TINY, ImageFeatures
from fedotp.federation.testing import Predictor
from fedotp.matching import pooled_score
from fedotp.methods import Batch, Parameters, PromptSettings, Task
from fedotp.methods._pfedmoap import PFedMoAP
from fedotp.prompts import PromptEncoder

C, B, E = 3, 4, 16


def trained(method: PFedMoAP, task: Task, present: list[list[float]]) -> Parameters:
    """What clients that differ predict with; `present` (C, n) says which experts they have."""
    params = {name: value + 0.3 * draw(C, *value.shape[1:]) for name, value in method.untrained(task).items()}
    return params | {"present": torch.tensor(present, dtype=torch.float64)}


def images() -> ImageFeatures:
    return ImageFeatures(draw(C, B, E), draw(C, B, 0, E))


# Scores ----------------------------------------------------------------------------------------------------


def test_the_order_of_experts_and_whatever_is_hidden_change_nothing(task: Task) -> None:
    method, image = PFedMoAP(experts=3), images()
    params = trained(method, task, [[1, 1, 1], [1, 0, 1], [0, 1, 0]])
    found = Predictor.of(method, task, params, C).scores(image)
    order = torch.tensor([2, 0, 1])
    moved = params | {name: params[name][:, order] for name in ("experts", "present")}
    torch.testing.assert_close(Predictor.of(method, task, moved, C).scores(image), found)
    hidden = (params["present"] == 0)[..., None, None]
    noisy = params | {"experts": torch.where(hidden, 100 * draw(*params["experts"].shape), params["experts"])}
    torch.testing.assert_close(Predictor.of(method, task, noisy, C).scores(image), found)
    other = params | {"experts": params["experts"] + 0.3 * draw(*params["experts"].shape)}
    assert (Predictor.of(method, task, other, C).scores(image) - found).abs().amin(dim=(1, 2)).min() > 1e-6


def test_without_experts_a_client_scores_plainly_and_its_gate_gets_no_gradient(task: Task) -> None:
    method, image = PFedMoAP(experts=2), images()
    params = trained(method, task, [[0, 0], [1, 0], [0, 0]])
    for name in ("own", "gate_in", "gate_out"):
        params[name].requires_grad_()
    classes = method.class_features(task, params | method.derived(task, params, None))
    scores = method.score(task, params, Batch(image, torch.zeros(C, B)), classes)
    plain = pooled_score(image.pooled, classes[:, :1])
    torch.testing.assert_close(scores[[0, 2]], plain[[0, 2]])
    assert (scores[1] - plain[1]).abs().min() > 1e-6
    for gradient in torch.autograd.grad(scores.square().sum(), [params["gate_in"], params["gate_out"]]):
        assert gradient.isfinite().all()
        assert (gradient.flatten(1).abs().sum(1) > 0).tolist() == [False, True, False]


def test_the_gating_network_sees_every_so_manyeth_component() -> None:
    clip = CLIP.random(replace(TINY, embed_dim=256)).double()
    task = Task(clip, ("cat", "dog"), PromptSettings(n_ctx=2))
    method, image = PFedMoAP(experts=1, lam=0.0), ImageFeatures(draw(1, B, 256), draw(1, B, 0, 256))
    params = {name: value + 0.1 * draw(*value.shape) for name, value in method.untrained(task).items()}
    params["present"] = torch.ones(1, 1, dtype=torch.float64)
    predictor = Predictor.of(method, task, params)
    found, norm = predictor.scores(image), image.pooled.norm(dim=-1, keepdim=True)
    unseen = torch.arange(256) % 2 == 1
    pooled = torch.where(unseen, draw(1, B, 256), image.pooled)
    pooled[..., unseen] *= image.pooled[..., unseen].norm(dim=-1, keepdim=True) / pooled[..., unseen].norm(
        dim=-1, keepdim=True
    )
    torch.testing.assert_close(pooled.norm(dim=-1, keepdim=True), norm)
    torch.testing.assert_close(predictor.scores(ImageFeatures(pooled, image.tokens)), found)


# Once a round ----------------------------------------------------------------------------------------------


def test_every_expert_is_encoded_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = simulator(PFedMoAP(experts=3))
    rows: list[int] = []
    plain = PromptEncoder.__call__

    def encode(self: PromptEncoder, context: Tensor) -> Tensor:
        rows.append(len(context))
        return plain(self, context)

    monkeypatch.setattr(PromptEncoder, "__call__", encode)
    own = [5, 5, 3, 3, 1, 1]  # who make steps, of clients with 7, 3, 10, 5 and 1 images, in batches of 4, twice
    federation.run_round()
    assert rows == [1, *own]  # P_g is in all places
    rows.clear()
    sent = federation.method.send(federation.server.params, torch.arange(5), 5)["experts"]
    different = {expert.numpy().tobytes() for expert in sent.flatten(0, 1)}
    assert 3 < len(different) <= 5  # not 5 times 3
    federation.run_round()
    assert rows == [len(different), *own]


# Who is sent what ------------------------------------------------------------------------------------------


def server_of(method: PFedMoAP, task: Task, n: int, sent: list[int]) -> Parameters:
    server = method.shared(task, n)
    at = torch.tensor(sent, dtype=torch.long)
    server["pool"][at] = draw(len(sent), *server["pool"].shape[1:])
    server["sent"][at] = 1
    return server


def test_the_nearest_are_those_of_scikit_learn(task: Task) -> None:
    from sklearn.neighbors import NearestNeighbors

    method, sent = PFedMoAP(experts=3), [0, 1, 3, 4, 5, 7]
    server = server_of(method, task, 8, sent)
    found = method.send(server, torch.tensor([4, 2, 0]), 3)
    flat = server["pool"][sent].flatten(1).numpy()
    nearest = NearestNeighbors(n_neighbors=4).fit(flat).kneighbors(flat, return_distance=False)
    assert found["present"].tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]  # client 2 has not sent anything yet
    for row, client in ((0, 4), (2, 0)):
        mine = [sent[j] for j in nearest[sent.index(client)] if sent[j] != client]
        torch.testing.assert_close(found["experts"][row], server["pool"][mine, 0])
    torch.testing.assert_close(found["experts"][1], server["prompt"].expand(3, -1, -1))


def test_in_fixed_order_they_are_the_first_of_a_permutation_drawn_once(task: Task) -> None:
    method, orders = PFedMoAP(experts=2, choice="fixed"), set()
    for seed in range(4):
        server = server_of(method, replace(task, seed=seed), 6, [1, 2, 4, 5])
        order = [j for j in server["order"].argsort().tolist() if j in (1, 2, 4, 5)]
        found = method.send(server, torch.tensor([1, 5]), 2)
        for row, client in enumerate((1, 5)):
            others = [j for j in order if j != client][:2]
            torch.testing.assert_close(found["experts"][row], server["pool"][others, 0])
        orders.add(tuple(order))
        later = method.aggregate(server, torch.tensor([0]), {"prompt": draw(1, 1, 3, 32)}, torch.ones(1))
        assert torch.equal(later["order"], server["order"])
    assert len(orders) > 1


@pytest.mark.parametrize("sent", [[], [2], [0, 2]])
def test_where_there_are_fewer_the_message_keeps_its_size(task: Task, sent: list[int]) -> None:
    method = PFedMoAP()
    server = server_of(method, task, 3, sent)
    shapes = {name: value.shape[1:] for name, value in method.send(method.shared(task, 1), None, 1).items()}
    for clients in (torch.tensor([0, 1, 2]), torch.tensor([2]), None):
        n = 3 if clients is None else len(clients)
        found = method.send(server, clients, n)
        assert {name: value.shape[1:] for name, value in found.items()} == shapes
        known = [] if clients is None else [len(sent) - 1 if client in sent else 0 for client in clients.tolist()]
        assert found["present"].sum(1).tolist() == (known or [0] * n)
    assert sum(shape.numel() for shape in shapes.values()) == 10 * task.contexts(1).numel() + 9
