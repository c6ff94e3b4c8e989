"""FedCLIP: its adapter against torch.nn's layers, client by client."""

import torch
from torch import nn

from federation.toy_federation import make_task
from fedotp.clip import ImageFeatures
from fedotp.methods import Batch, Kind, ZeroShot
from fedotp.methods._fedclip import FedCLIP

C, B, E = 3, 4, 16


def layers(seed: int) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(E, E), nn.Tanh(), nn.Linear(E, E), nn.Softmax(dim=-1))


def test_it_starts_as_torch_draws_its_layers() -> None:
    found = FedCLIP().shared(make_task(seed=3), 5)
    assert all(torch.equal(a, b) for a, b in zip(found.values(), layers(3).parameters(), strict=True))
    assert not torch.equal(found["first_weight"], FedCLIP().shared(make_task(seed=4), 5)["first_weight"])
    assert FedCLIP().shared(make_task(torch.float64), 5)["first_weight"].dtype == torch.float64


def test_scores_are_cosines_of_adapted_images_with_captions() -> None:
    task, method = make_task(), FedCLIP()
    adapters = [layers(seed) for seed in range(C)]
    names = list(method.shared(task, C))
    params = {name: torch.stack([list(a.parameters())[n].detach() for a in adapters]) for n, name in enumerate(names)}
    image = ImageFeatures(torch.randn(C, B, E), torch.randn(C, B, 0, E))
    classes = method.class_features(task, params)
    assert torch.equal(classes, ZeroShot().class_features(task, {}))
    found = method.score(task, params, Batch(image, torch.zeros(C, B, dtype=torch.long)), classes)
    for client, adapter in enumerate(adapters):
        f = nn.functional.normalize(image.pooled[client], dim=-1)
        adapted = (adapter(f) * f).detach()
        expected = nn.functional.cosine_similarity(adapted[:, None], classes[0, 0], dim=-1)
        torch.testing.assert_close(found[client], expected, rtol=0, atol=1e-6)
    assert method.kinds(task, params) == (Kind.CAPTION,)
