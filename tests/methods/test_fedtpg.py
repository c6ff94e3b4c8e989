"""What FedTPG promises beyond its golden test: which classes count, and when."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from federation.toy_federation import draw
from fedotp.clip import CLIP, TINY, ImageFeatures
from fedotp.federation.testing import Predictor
from fedotp.methods import Batch, Parameters, Task
from fedotp.methods._fedtpg import FedTPG

C, B, E = 3, 4, 16


def networks(task: Task) -> Parameters:
    """Of clients that differ."""
    return {name: value + 0.1 * draw(C, *value.shape) for name, value in FedTPG().shared(task, C).items()}


def loss_of(task: Task, params: Parameters, batch: Batch, own: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The clients' objectives and gradients."""
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    known = leaves | FedTPG().derived(task, params, own)
    loss = FedTPG().loss(task, known, {}, batch)
    return loss.detach(), list(torch.autograd.grad(loss.sum(), list(leaves.values())))


def test_the_name_of_an_absent_class_changes_nothing(task: Task) -> None:
    own = torch.tensor([[True, False, True], [True, True, False], [True, False, True]])
    labels = torch.tensor([[0, 2, 0, -1], [0, 0, 1, 1], [2, 2, 2, 2]])
    params, batch = networks(task), Batch(ImageFeatures(draw(C, B, E), draw(C, B, 0, E)), labels)
    loss, gradients = loss_of(task, params, batch, own)
    renamed = replace(task, classes=("cat", "hippopotamus", "car"))  # "egyptian mau", which client 1 has
    other_loss, other_gradients = loss_of(renamed, params, batch, own)
    torch.testing.assert_close(other_loss[[0, 2]], loss[[0, 2]])
    assert abs(other_loss[1] - loss[1]) > 1e-6
    for gradient, other in zip(gradients, other_gradients, strict=True):
        assert gradient.isfinite().all()
        torch.testing.assert_close(other[[0, 2]], gradient[[0, 2]])


def test_a_client_with_all_classes_trains_as_it_predicts(task: Task) -> None:
    params, image = networks(task), ImageFeatures(draw(C, B, E), draw(C, B, 0, E))
    labels = torch.randint(3, (C, B))
    loss, _ = loss_of(task, params, Batch(image, labels), torch.ones(C, 3, dtype=torch.bool))
    _, losses = Predictor.of(FedTPG(), task, params, C).judge(image, labels)
    torch.testing.assert_close(losses.mean(1), loss)


def test_a_prompt_for_other_names_is_made_from_these(task: Task) -> None:
    params = networks(task)
    predictor = Predictor.of(FedTPG(), task, params, C)
    several = replace(task, classes=("cat", "egyptian mau", "car", "hippopotamus"))
    asked = predictor.with_task(several).classes
    assert asked.shape == (C, 1, 4, E)
    assert (asked[:, :, :3] - predictor.classes).abs().amax(dim=(1, 2, 3)).min() > 1e-6
    swapped = replace(task, classes=("car", "cat", "egyptian mau"))  # a set has no order
    torch.testing.assert_close(predictor.with_task(swapped).classes, predictor.classes[:, :, [2, 0, 1]])


@pytest.mark.parametrize("embed_dim", [64, 32])
def test_its_attention_starts_as_torchs(embed_dim: int) -> None:
    """As torch.nn.MultiheadAttention, whose bounds depend on whether all widths are the same; biases are 0."""
    config = replace(TINY, embed_dim=embed_dim, text=replace(TINY.text, width=64))
    found = FedTPG().shared(Task(CLIP.random(config), ("cat", "dog")), 1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = torch.nn.MultiheadAttention(64, 4, kdim=embed_dim, vdim=embed_dim).requires_grad_(False)
    packed = theirs.in_proj_weight
    apart = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight) if packed is None else packed.chunk(3)
    for name, like in zip(("query", "key", "value", "out"), (*apart, theirs.out_proj.weight), strict=True):
        assert float(found[name].abs().max()) == pytest.approx(float(like.abs().max()), rel=0.02)
        assert not found[f"{name}_bias"].any()
    assert not theirs.in_proj_bias.any()
    assert not theirs.out_proj.bias.any()
    assert found["ff_in_bias"].any()
