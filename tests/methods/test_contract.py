"""What every method promises, whatever it is: checked on all of them, the tests' own included."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from anchored import NEED_CONTEXT, WITHOUT_PROMPTS, Anchored
from federation.toy_federation import draw, make_settings, make_task, simulator
from fedotp.clip import CLIP, ImageFeatures
from fedotp.errors import FedotpError
from fedotp.federation import prompt_lengths
from fedotp.federation.testing import Predictor
from fedotp.matching import Matching
from fedotp.methods import METHODS, Batch, FedOTP, Kind, Memory, Method, Parameters, Prompt, PromptSettings, Task

C, B, V, K, E = 3, 4, 5, 3, 16
CASES = [(name, "context") for name in METHODS]
CASES += [(name, "features") for name in METHODS if name not in NEED_CONTEXT]
every_method = pytest.mark.parametrize(("name", "task"), CASES, indirect=["task"])


@pytest.fixture(scope="module")
def task(request: pytest.FixtureRequest, clip: CLIP) -> Task:
    return Task(
        clip, ("cat", "egyptian mau", "car"), PromptSettings(getattr(request, "param", "context"), n_ctx=4, std=0.3)
    )


@pytest.fixture
def batch() -> Batch:
    memory = Memory(draw(C, 2, E), torch.randint(K, (C, 2)))
    return Batch(ImageFeatures(draw(C, B, E), draw(C, B, V, E)), torch.randint(K, (C, B)), memory=memory)


def params_of(method: Method, task: Task, n_clients: int) -> Parameters:
    """Parameters of clients that differ."""
    start = method.untrained(task)
    return {name: value + 0.1 * torch.randn(n_clients, *value.shape[1:]) for name, value in start.items()}


@every_method
def test_prompts_features_and_kinds_are_of_one_number(name: str, task: Task) -> None:
    method = METHODS[name]()
    params = params_of(method, task, C)
    features = method.class_features(task, params | method.derived(task, params, None))
    assert features.shape[1:] == (len(method.kinds(task, params)), K, E)
    assert len(features) in (1, C)
    assert len(prompt_lengths(method, task)) == features.shape[1]


@every_method
def test_only_directions_of_class_features_matter(name: str, task: Task, batch: Batch) -> None:
    method = METHODS[name]()
    params = params_of(method, task, C)
    classes = method.class_features(task, params | method.derived(task, params, None)).expand(C, -1, -1, -1)
    longer = classes * (0.5 + torch.rand(*classes.shape[:-1], 1, dtype=torch.float64))
    found = method.score(task, params, batch, classes)
    assert found.shape == (C, B, K)
    torch.testing.assert_close(method.score(task, params, batch, longer), found, rtol=0, atol=1e-10)


@every_method
def test_a_client_predicts_alike_alone_and_among_others(name: str, task: Task, batch: Batch) -> None:
    method = METHODS[name]()
    params = params_of(method, task, C)
    together = Predictor.of(method, task, params, C, memory=batch.memory)
    alone = together.rows(slice(1, 2))
    image = ImageFeatures(*(value[1:2] for value in batch.image))
    assert (len(together), len(alone), together.kinds) == (C, 1, alone.kinds)
    torch.testing.assert_close(alone.scores(image)[0], together.scores(batch.image)[1])
    similar = together.similarity(batch.image.tokens, batch.labels)
    torch.testing.assert_close(alone.similarity(image.tokens, batch.labels[1:2])[0], similar[1])
    if method.matching.has_plan:
        torch.testing.assert_close(alone.plan(similar[1:2], image)[0], together.plan(similar, batch.image)[1])


@every_method
def test_nothing_private_and_nothing_fixed_is_sent(name: str, task: Task, batch: Batch) -> None:
    method = METHODS[name]()
    received = method.send(method.shared(task, C), torch.arange(C), C)
    private = {name: value.expand(C, *value.shape) for name, value in method.private(task).items()}
    draws = [np.random.default_rng(i) for i in range(C)]
    params = method.start(received, private)
    if method.in_closed_form:
        params = method.settled(params, method.statistics(task, params, batch), torch.ones(C))
    sent = method.upload(params, received, draws)
    assert not sent.keys() & (method.fixed | private.keys() - method.publishes)
    kept = method.keep(params, received, [np.random.default_rng(i) for i in range(C)])
    assert {name: value.shape for name, value in kept.items()} == {name: private[name].shape for name in kept}


@pytest.mark.parametrize("optimizer", [{}, {"reset": False}, {"name": "adamw", "reset": False}])
def test_what_is_fixed_stays_and_a_scalar_is_learned(optimizer: dict[str, object]) -> None:
    federation = simulator("anchored", make_settings(optimizer=optimizer))
    before = federation.server.params["anchor"].clone()
    for _ in range(2):
        federation.run_round()
    kept = federation.kept.read(np.arange(len(federation.data)), federation.device)
    assert torch.equal(federation.server.params["anchor"], before)
    assert kept["sharpness"].shape == (len(federation.data),)
    assert (kept["sharpness"] != 0).all()
    assert not any("anchor" in name for name in kept)


def test_a_rate_is_a_factor_on_the_learning_rate() -> None:
    @dataclass(frozen=True)
    class Twice(Anchored):
        @property
        def rate(self) -> dict[str, float]:
            return {name: 2 * factor for name, factor in super().rate.items()}

    moved = []
    for method in (Anchored(), Twice()):
        one_step = make_settings(local_epochs=1, batch_size=100, optimizer={"weight_decay": 0.0})
        federation = simulator(method, one_step)
        federation.run_round()
        moved.append(federation.kept.read(np.arange(5), federation.device)["sharpness"])
    torch.testing.assert_close(moved[1], 2 * moved[0])


def test_prompts_of_unequal_lengths_stand_side_by_side(task: Task) -> None:
    short, long = (torch.randn(C, n, s, 32, dtype=torch.float64) for n, s in ((2, 2), (1, 6)))
    common = torch.randn(1, 1, 6, 32, dtype=torch.float64).expand(C, -1, -1, -1)
    found = task.features(short, None, long, common)
    expected = [
        task.encoder_for(2)(short),
        task.template_features().expand(C, -1, -1, -1),
        task.encoder_for(6)(long),
        task.encoder_for(6)(common.contiguous()),
    ]
    torch.testing.assert_close(found, torch.cat(expected, dim=1))
    assert task.contexts(2, 6).shape == (2, 6, 32)


@every_method
def test_what_prompts_forget_is_added_to_the_loss(name: str, task: Task, batch: Batch) -> None:
    """KgCoOp's w (1 - mean_k cos(z_k(P), z_k of the caption)), of the mean over prompts that are learned."""
    method = METHODS[name]()
    assert method.learns_prompts(task) == (name not in WITHOUT_PROMPTS)
    if not method.learns_prompts(task):
        return
    received = method.send(method.shared(task, C), torch.arange(C), C)
    private = {name: value.expand(C, *value.shape) for name, value in method.private(task).items()}
    params = {name: value + 0.1 * torch.rand(value.shape) for name, value in method.start(received, private).items()}
    params |= method.derived(task, params, torch.ones(C, K, dtype=torch.bool))
    near = replace(task, prompt=replace(task.prompt, kgcoop=3.0))
    extra = method.loss(near, params, received, batch) - method.loss(task, params, received, batch)
    captions = task.template_features()[0, 0].numpy()
    learned = [
        task.features(context[:, n : n + 1])[:, 0]
        for kind, context in method.training_prompts(task, params)
        if kind not in (Kind.CAPTION, Kind.OTHERS) and context is not None
        for n in range(context.shape[1])
    ]
    for c in range(C):
        cosines = [
            np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
            for features in learned
            for a, b in zip(features[c].detach().numpy(), captions, strict=True)
        ]
        assert float(extra[c]) == pytest.approx(3 * (1 - np.mean(cosines)), abs=1e-10)


@pytest.mark.parametrize("rule", ["pooled", "average", "classical", "unbalanced"])
def test_equal_weights_are_none(rule: str, batch: Batch) -> None:
    matching, classes = Matching(rule), torch.randn(C, 2, K, E, dtype=torch.float64)  # type: ignore[arg-type]
    alike = torch.full((2,), 0.5, dtype=torch.float64)
    expected = matching(batch.image, classes)
    torch.testing.assert_close(matching(batch.image, classes, alike), expected)
    first = torch.tensor([1.0, 0.0], dtype=torch.float64)
    if rule in ("pooled", "average"):
        only = matching(batch.image, classes[:, :1])
        torch.testing.assert_close(matching(batch.image, classes, first), only)


@dataclass(frozen=True)
class Pixels(FedOTP):
    """A method that asks of images for what is not kept."""

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"pixels"})


@dataclass(frozen=True)
class Sharpness(Anchored):
    """A method that learns no prompts."""

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        return (Prompt(Kind.CAPTION, None),)


def test_what_a_method_cannot_do_is_refused_before_it_trains() -> None:
    with pytest.raises(FedotpError, match="FedOTP: needs = pixels: must be pooled, tokens"):
        simulator(Pixels())
    with pytest.raises(FedotpError, match=r"^prompt.kgcoop = 8.0: must be 0, as Anchored learns no prompts$"):
        simulator(Sharpness(), task=make_task(kgcoop=8.0))


@pytest.mark.parametrize("name", NEED_CONTEXT)
def test_a_method_that_needs_context_vectors_says_so(name: str) -> None:
    with pytest.raises(FedotpError, match=r'^prompt.space = "features": must be "context", as .* context vectors'):
        simulator(name, task=make_task(space="features"))


@every_method
def test_the_global_part_predicts_with_what_a_newcomer_is_sent(name: str, task: Task, batch: Batch) -> None:
    method = METHODS[name]()
    if (part := method.global_part) is None:
        return
    received = method.send(method.shared(task, C), None, 1)
    assert not part.private(task)
    scores = Predictor.of(part, task, part.deployed(received, {})).scores(ImageFeatures(*(v[:1] for v in batch.image)))
    assert scores.shape == (1, B, K)
    assert scores.isfinite().all()
    again = part.global_part
    assert again == part
