"""FedPHA: its projection against SciPy's null space, its prompts of two lengths."""

import torch

from federation.toy_federation import make_data, make_task, simulator
from fedotp.federation import prompt_lengths
from fedotp.methods import Kind
from fedotp.methods._fedpha import FedPHA

C, D = 2, 32


def projected(method: FedPHA, common: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """P~ (C, 1, s_l, d), as training encodes it."""
    params, task = {"prompt": common, "local": local}, make_task(torch.float64)
    return method.training_prompts(task, params | method.derived(task, params, None))[1].context


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def test_at_rho_0_the_subspace_is_the_null_space_and_at_1_everything() -> None:
    from scipy.linalg import null_space

    common, local = draw(C, 1, 3, D), draw(C, 1, 4, D)
    found = projected(FedPHA(rho=0.0), common, local)
    for prompt, own, expected in zip(common[:, 0], local[:, 0], found[:, 0], strict=True):
        N = torch.from_numpy(null_space(prompt.numpy()))  # (d, d - 3)
        torch.testing.assert_close(expected, own @ N @ N.T, rtol=0, atol=1e-12)
    torch.testing.assert_close(projected(FedPHA(rho=1.0), common, local), local)
    assert not projected(FedPHA(rho=0.0, subspace="row"), common, local).any()


def test_the_local_prompt_alone_predicts_and_may_have_another_length() -> None:
    task, method = make_task(), FedPHA(n_ctx_private=5)
    federation = simulator(method, data=make_data())
    federation.run_round()
    params = federation.parameters(federation.members)
    assert params.keys() == {"local"}
    assert params["local"].shape[1:] == (1, 5, D)
    assert prompt_lengths(method, task) == [5]
    assert method.kinds(task, params) == (Kind.LOCAL,)
    before = federation.predict()
    federation.server.params["prompt"] += 1
    assert (federation.predict().loss == before.loss).all()
