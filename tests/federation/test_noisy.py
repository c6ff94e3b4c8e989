"""Training with differential privacy: every unit's gradient, who is drawn, what is noised, what is spent."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from toy_federation import (
    TRAIN,
    TRAINED,
    assert_same_bits,
    kept_rows,
    make_data,
    make_settings,
    make_task,
    simulator,
    state_of,
    worst_difference,
)

from fedotp.errors import FedotpError
from fedotp.federation import FederatedData, RoundSettings, Settings, Simulator
from fedotp.federation.clients._noisy import poisson_steps
from fedotp.methods import METHODS, Batch, Method, Parameters
from fedotp.methods._fedclip import FedCLIP
from fedotp.methods._promptfl import PromptFL
from fedotp.privacy import PrivacySettings, epsilon
from fedotp.privacy._clipping import unit_gradients

REFUSED = {"pfedprompt", "promptfl-ft", "coop"}
NOISY = [name for name in TRAINED if name != "pfedprompt" and not METHODS[name]().in_closed_form]
EXACT = {"precision": "float64"}
NOISE = 2.0  # the same in all tests: the accountant takes a while for each


def with_privacy(settings: Settings, **privacy: Any) -> Settings:
    return replace(settings, privacy=PrivacySettings(**{"unit": "example", "noise": NOISE, **privacy}))


def federation(method: Method | str, *, data: FederatedData | None = None, **privacy: Any) -> Simulator:
    settings = with_privacy(make_settings(compute=EXACT, optimizer={"lr": 0.02}), **privacy)
    return simulator(method, settings, task=make_task(torch.float64), data=data)


def a_batch(data: FederatedData, clients: np.ndarray, width: int) -> Batch:
    """The first images of the clients, some padding among them."""
    sizes = data.train.sizes(clients)
    places = np.where(np.arange(width) < sizes[:, None], np.arange(width), -1)
    image, labels = data.train.read(data.train.rows(clients, places), 0, torch.device("cpu"), torch.float64)
    return Batch(image, labels, torch.from_numpy(places))


def somewhere(method: Method, n_clients: int) -> tuple[Parameters, Parameters]:
    """Parameters (C, ...) away from the start, and what was received."""
    task = make_task(torch.float64)
    generator = torch.Generator().manual_seed(3)
    received = method.send(method.shared(task, n_clients), torch.arange(n_clients), n_clients)
    private = {name: value.expand(n_clients, *value.shape) for name, value in method.private(task).items()}
    params = {
        name: value + (0.05 * torch.randn(value.shape, dtype=value.dtype, generator=generator))
        for name, value in method.start(received, private).items()
        if name not in method.fixed
    }
    params = {**method.start(received, private), **params}
    return params | method.derived(task, params, torch.ones(n_clients, 3, dtype=torch.bool)), received


@pytest.mark.parametrize("name", NOISY)
def test_every_image_s_gradient_is_that_of_a_loop(name: str) -> None:
    """The oracle is the method's own loss on one image at a time, without penalties: loss of it less loss of none."""
    method = METHODS[name]()
    task = make_task(torch.float64, kgcoop=0.0 if name == "fedclip" else 2.0)
    clients, width = np.array([0, 1, 2]), 4
    batch = a_batch(make_data(), clients, width)
    params, received = somewhere(method, len(clients))
    names = [n for n in method.start(received, {k: params.get(k) for k in method.private(task)}) if n in params]
    names = [n for n in names if n not in method.fixed]
    current = params | {n: params[n].detach().requires_grad_() for n in names}
    leaves = [current[n] for n in names]
    each, *penalties = method.objective(task, current, received, batch._replace(apart=True))
    assert each.shape == (len(clients), width)
    units = torch.arange(width).expand(len(clients), width)
    (found,) = unit_gradients(each, leaves, torch.where(batch.labels < 0, -1, units))
    total = method.loss(task, current, received, batch)
    counted = (batch.labels >= 0).sum(1)
    torch.testing.assert_close(sum(penalties, each.sum(1) / counted), total, rtol=0, atol=1e-12)
    for b in range(width):
        alone, none = (
            method.loss(task, current, received, batch._replace(labels=labels)).sum()
            for labels in (torch.where(torch.arange(width) == b, batch.labels, -1), torch.full_like(batch.labels, -1))
        )
        expected = torch.autograd.grad(alone - none, leaves, allow_unused=True)
        for leaf, mine, theirs in zip(leaves, found, expected, strict=True):
            theirs = torch.zeros_like(leaf) if theirs is None else theirs
            assert (mine[b] - theirs).abs().max() <= 1e-10
    assert max(float(part.abs().max()) for part in found) > 1e-3


@pytest.mark.parametrize("name", [name for name in NOISY if name not in REFUSED])
def test_without_noise_and_clip_full_batches_are_plain_training(name: str) -> None:
    """All take part in every step, nothing is cut off, nothing added: the same prompts as without privacy."""
    data = make_data(train=(4, 4, 4), test=(2, 2, 2))
    plain = simulator(
        name, make_settings(compute=EXACT, optimizer={"lr": 0.02}), task=make_task(torch.float64), data=data
    )
    noisy = federation(name, data=data, noise=0.0, clip=1e9, private=True)
    for each in (plain, noisy):
        each.run_round()
        report = each.run_round()
    assert report.epsilon is None
    if name == "fedtpg":  # which classes a client has is not told
        assert worst_difference(state_of(plain), state_of(noisy)) > 1e-6
    else:
        assert worst_difference(state_of(plain), state_of(noisy)) <= 1e-10


@pytest.mark.parametrize(("name", "private"), [("fedotp", False), ("fedmgp", True), ("pfedmoap", False)])
def test_noise_is_each_client_s_own_whoever_trains_beside_it(name: str, private: bool) -> None:
    found = []
    for compute in ({"group_size": 64}, {"group_size": 1}):
        settings = with_privacy(make_settings(compute={**EXACT, **compute}, participation=0.8), private=private)
        each = simulator(name, settings, task=make_task(torch.float64))
        each.run_round()
        each.run_round()
        found.append(state_of(each))
    assert worst_difference(*found) <= 1e-12
    assert worst_difference(found[0], state_of(federation(name, private=private))) > 0.01


def test_what_is_sent_knows_nothing_of_images_but_by_noised_gradients() -> None:
    """Without `private`, a client's own prompt has learned what it likes: what is sent is the same bits."""
    sent = []
    for known in (0.0, 3.0):
        each = federation("fedotp")
        start = kept_rows(each)["private"]
        each.kept.write(np.arange(len(TRAIN)), {"private": start + known})
        each.run_round()
        sent.append(each.server.params)
        assert (kept_rows(each)["private"] != start + known).any()
    assert_same_bits(*sent)


def test_what_is_kept_learns_without_noise_beside_what_is_sent() -> None:
    quiet, loud = (federation("fedotp", noise=noise, clip=1e-6) for noise in (0.0, NOISE))
    for each in (quiet, loud):
        each.run_round()
    assert worst_difference(kept_rows(quiet), kept_rows(loud)) < 1e-5
    assert worst_difference(kept_rows(quiet), kept_rows(federation("fedotp"))) > 0.01


def test_every_image_is_drawn_by_itself_with_the_rate_that_is_accounted_for() -> None:
    rng = np.random.default_rng(0)
    n, batch_size, epochs = 40, 10, 500
    settings = Settings(RoundSettings(batch_size=batch_size))
    steps = list(poisson_steps([np.arange(n)], [rng], settings, epochs=epochs))
    assert len(steps) == settings.noisy_steps(n, epochs) == epochs * n // batch_size
    drawn = np.zeros((len(steps), n))
    for row, step in zip(drawn, steps, strict=True):
        places = step.places[0][step.places[0] >= 0]
        assert len(np.unique(places)) == len(places)
        row[places] = 1
    rate = batch_size / n
    assert abs(drawn.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / drawn.size)
    assert abs(drawn.mean(0) - rate).max() < 5 * np.sqrt(rate * (1 - rate) / len(steps))
    assert abs(drawn.sum(1).var() - n * rate * (1 - rate)) < 1  # as of independent draws: batches are not of one size
    assert steps[-1].epochs[0] == epochs - 1


def test_groups_come_and_go_as_one() -> None:
    groups, settings = np.array([0, 0, 1, 2, 2, 2]), Settings(RoundSettings(batch_size=3))
    for step in poisson_steps([groups], [np.random.default_rng(1)], settings, epochs=30):
        places = step.places[0][step.places[0] >= 0]
        for group in range(3):
            taken = np.isin(np.flatnonzero(groups == group), places)
            assert taken.all() or not taken.any()


def grouped(data: FederatedData, groups: np.ndarray) -> FederatedData:
    return replace(data, train=replace(data.train, groups=groups))


def test_groups_of_one_image_are_images_and_a_group_of_all_is_clipped_as_one() -> None:
    data = make_data(train=(4, 4), test=(2, 2))
    one = federation("promptfl", data=data)
    each = federation("promptfl", data=grouped(data, np.arange(8)), unit="group")
    one.run_round()
    each.run_round()
    assert worst_difference(one.server.params, each.server.params) <= 1e-12
    clip = 1e-3
    together = federation("promptfl", data=grouped(data, np.zeros(8, np.int64)), unit="group", noise=0.0, clip=clip)
    before = together.server.params["prompt"].clone()
    together.run_round()
    # Two epochs are two steps of length at most lr * clip / 4, with momentum 0.9 the second at most 1.9 times that.
    lr, decay = 0.02, 5e-4
    most = lr * clip / 4 * (1 + 1.9) + lr * decay * float(before.norm()) * 3
    assert float((together.server.params["prompt"] - before).norm()) <= most * (1 + 1e-6)


@pytest.mark.parametrize("unit", ["example", "site"])
def test_epsilon_of_a_run_is_the_accountant_s(unit: str) -> None:
    settings = with_privacy(make_settings(participation=0.6, rounds=4), unit=unit)
    each = simulator("promptfl", settings)
    reports = [each.run_round() for _ in range(4)]
    answered = np.zeros(len(TRAIN), int)
    for report in reports:
        answered[report.answered] += 1
    facts = each.facts()["privacy"]
    if unit == "site":
        assert facts["epsilon"] == epsilon(NOISE, 4, 1e-5)
    else:
        expected = [
            epsilon(NOISE, a * max(1, round(2 * n / 4)), 1e-5, min(1, 4 / n))
            for a, n in zip(answered, TRAIN, strict=True)
        ]
        assert list(facts["clients"].values()) == expected
        assert facts["epsilon"] == max(expected)
    assert reports[-1].epsilon == facts["epsilon"]
    assert all(one.epsilon <= other.epsilon for one, other in pairwise(reports))


def test_sites_are_hidden_by_the_mechanism_of_the_server_of_real_ones() -> None:
    """Without noise, and with a clip that nothing reaches, it is the plain mean of the clients' prompts."""
    data = make_data(train=(4, 4, 4), test=(2, 2, 2))
    plain = simulator("promptfl", make_settings(), data=data)
    private = simulator("promptfl", with_privacy(make_settings(), unit="site", noise=0.0, clip=1e6), data=data)
    noisy = simulator("promptfl", with_privacy(make_settings(), unit="site", clip=0.1), data=data)
    for each in (plain, private, noisy):
        each.run_round()
    assert worst_difference(plain.server.params, private.server.params) <= 1e-6
    assert worst_difference(noisy.server.params, private.server.params) > 0.01
    again = simulator("promptfl", with_privacy(make_settings(), unit="site", clip=0.1), data=data)
    again.run_round()
    assert_same_bits(noisy.server.params, again.server.params)


def test_a_budget_ends_the_run_before_it_is_exceeded() -> None:
    free = federation("promptfl")
    spent = [free.run_round().epsilon for _ in range(3)]
    limited = federation("promptfl", epsilon=(spent[1] + spent[2]) / 2)
    done = 0
    while limited.may_go_on():
        limited.run_round()
        done += 1
    assert done == 2
    assert limited.facts()["privacy"]["ended_the_run"]
    assert limited.facts()["privacy"]["epsilon"] == spent[1]
    with pytest.raises(FedotpError, match=r"privacy.epsilon = 0.1: must be at least .*, the cost of one round"):
        federation("promptfl", epsilon=0.1)


class OwnLoss(PromptFL):
    def loss(self, *args: Any) -> torch.Tensor:
        return super().loss(*args)


ALSO_KEPT = {"private": True}


@pytest.mark.parametrize(
    ("method", "privacy", "section", "authors", "why"),
    [
        ("pfedprompt", {}, {}, {}, "pFedPrompt: it uses the training images in predictions"),
        ("promptfl-ft", ALSO_KEPT, {}, {}, "it fine-tunes without noise before predictions"),
        ("coop", {}, {}, {}, "it has no shared parameters; set privacy.private = true"),
        (FedCLIP(variant="code"), {}, {}, {}, "its loss couples the images of a batch"),
        (OwnLoss(), {}, {}, {}, "it overrides `loss`"),
        ("fedotp", {"unit": "group"}, {}, {}, 'privacy.unit = "group": must be "example" for data without groups'),
        ("promptfl-fedamp", {"unit": "site"}, {}, {}, "not supported for PromptFL.FedAMP, which has no average"),
        ("fedotp", ALSO_KEPT, {"compute": {"precision": "bfloat16"}}, {}, 'compute.precision = "bfloat16": must be'),
        ("fedotp", ALSO_KEPT, {"holdout_clients": 1}, {}, "federation.holdout = 1: must be unset with privacy"),
        ("fedotp", {}, {}, {"batch_solver": True}, r"its loss couples the images of a batch \(authors.batch_solver"),
        ("fedotp", {}, {}, {"leaked_momentum": True}, "authors.leaked_momentum = true: must be false with privacy"),
    ],
)
def test_what_cannot_be_promised_is_refused(
    method: Method | str, privacy: dict, section: dict, authors: dict, why: str
) -> None:
    with pytest.raises(FedotpError, match=why):
        simulator(method, with_privacy(make_settings(**section), **privacy), task=make_task(authors=authors))
