"""Closed forms: exactly the centralised solution, for any partition; and the class prior."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.special
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_federation import CLASSES, make_data, make_novel, make_settings, make_task, simulator, unit

from fedotp.errors import FedotpError
from fedotp.federation import Settings, Simulator
from fedotp.matching import cross_entropy
from fedotp.methods import Batch, FedOTP, PersonalRidge
from fedotp.methods._ridge import REGS, FedCOF, Ridge
from fedotp.privacy import PrivacySettings, noise_for


def pooled(federation: Simulator, clients: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, e) of length 1 and targets (n, K), one-hot minus 1/K, of all training images of these clients."""
    data = federation.data.train
    rows = np.concatenate([data.clients[i] for i in clients])
    image, _ = data.read(rows[None], 0, torch.device("cpu"), torch.float64)
    return F.normalize(image.pooled[0], dim=-1).numpy(), np.eye(len(CLASSES))[data.labels[rows]] - 1 / len(CLASSES)


def centralised(x: np.ndarray, y: np.ndarray, target: np.ndarray, alpha: float) -> np.ndarray:
    """scikit-learn's ridge of what the weights `target` (e, K) leave, added to them."""
    from sklearn.linear_model import Ridge as Oracle

    return (
        target + Oracle(alpha=alpha, fit_intercept=False, tol=1e-15, solver="cholesky").fit(x, y - x @ target).coef_.T
    )


def private(given: Settings, **privacy: object) -> Settings:
    return replace(given, privacy=PrivacySettings(**privacy))


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), reg=st.floats(0.01, 2.0), text=st.floats(0.0, 4.0))
def test_one_round_is_the_centralised_ridge_whatever_the_partition(sizes: list[int], reg: float, text: float) -> None:
    data = make_data(train=sizes, test=[2] * len(sizes))
    federation = simulator(Ridge(reg=reg, text=text), task=make_task(torch.float64), data=data)
    federation.run_round()
    x, y = pooled(federation, list(range(len(sizes))))
    target = text * federation.server.params["captions"].mT.numpy()
    found = federation.server.send(None, 1)["weights"][0].numpy()
    np.testing.assert_allclose(found, centralised(x, y, target, reg * len(x)), atol=1e-10)


def own_counted(federation: Simulator, client: int, everyone: list[int], reg: float) -> np.ndarray:
    """The centralised ridge of all images, those of one client counted 1 + 5 times; reg is per image of all."""
    x, y = pooled(federation, everyone)
    own_x, own_y = pooled(federation, [client])
    more = np.sqrt(5.0)
    target = 2.0 * federation.server.params["captions"].mT.numpy()
    return centralised(np.r_[x, more * own_x], np.r_[y, more * own_y], target, reg * len(x))


def test_own_images_count_more_for_a_personal_ridge() -> None:
    federation = simulator(Ridge(personal=5.0), task=make_task(torch.float64))
    federation.run_round()
    for client in range(len(federation.data)):
        found = federation.parameters(np.array([client]))["weights"][0].numpy()
        expected = own_counted(federation, client, list(range(len(federation.data))), 0.03)
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("personal", [0.0, 5.0])
def test_the_reg_chosen_has_the_least_loss_with_each_image_left_out(personal: float) -> None:
    """Every image is left out in turn, the ridge solved anew without it, and its loss taken."""
    method = PersonalRidge(personal=personal, features="pooled")
    federation = simulator(method, task=make_task(torch.float64), data=make_data(train=[5, 4, 6], test=[2, 2, 2]))
    federation.run_round()
    assert not federation.server.params["losses"].any()
    federation.run_round()
    x, y = pooled(federation, [0, 1, 2])
    n, target, losses = len(x), 2.0 * federation.server.params["captions"].mT.numpy(), np.zeros(len(REGS))
    owner = np.repeat([0, 1, 2], [5, 4, 6])
    for i in range(n):
        counts = np.sqrt(1 + personal * (owner == owner[i]))[:, None]
        rest = np.delete(np.arange(n), i)
        for number, reg in enumerate(REGS):
            w = centralised((counts * x)[rest], (counts * y)[rest], target, reg * n)
            logits = 10.0 * x[i] @ w
            losses[number] += min(50.0, scipy.special.logsumexp(logits) - logits[y[i].argmax()])
    np.testing.assert_allclose(federation.server.params["losses"].numpy(), losses / n, atol=1e-8)
    assert method.reg_of(federation.server.params).item() == REGS[losses.argmin()]


def test_personal_ridge_sees_patches_and_adds_the_prior_by_default() -> None:
    federation = simulator("personal-ridge", make_settings(rounds=7))
    assert (federation.settings.federation.rounds, federation.settings.evaluation.prior) == (2, 1.0)
    data = federation.data.train
    image, _ = data.read(data.clients[0][None], 0, torch.device("cpu"), torch.float64, federation.method.needs)
    pooled, tokens = (x[0].numpy() for x in image)
    expected = unit(unit(pooled) + unit(unit(tokens).mean(1)))
    np.testing.assert_allclose(federation.method.seen(image)[0].numpy(), expected, atol=1e-12)


def test_before_the_first_round_it_is_zero_shot_clip() -> None:
    ridge, captions = simulator("ridge"), simulator("zeroshot")
    np.testing.assert_array_equal(ridge.predict().predicted, captions.predict().predicted)


def test_a_closed_form_has_one_round_of_everyone() -> None:
    found = simulator("ridge", make_settings(rounds=7, participation=0.2)).settings.federation
    assert (found.rounds, found.participation) == (1, 1.0)


def test_a_client_that_joins_has_a_ridge_of_its_own() -> None:
    settings = make_settings(holdout_clients=1)
    federation = simulator(Ridge(personal=5.0), settings, task=make_task(torch.float64))
    federation.run_round()
    federation.join_held_out()
    client = int(federation.held_out[0])
    found = federation.parameters(np.array([client]))["weights"][0].numpy()
    rest = [i for i in range(len(federation.data)) if i != client]
    np.testing.assert_allclose(found, own_counted(federation, client, rest, 0.03), atol=1e-10)


def test_fedcof_estimates_second_moments_from_means() -> None:
    """Restated in NumPy, class by class."""
    federation = simulator(
        FedCOF(shrinkage=0.02), task=make_task(torch.float64), data=make_data(train=[9, 8, 7], test=[1, 1, 1])
    )
    federation.run_round()
    per_client = [pooled(federation, [client]) for client in range(3)]
    n_all, gram = sum(len(x) for x, _ in per_client), 0
    for c in range(len(CLASSES)):
        of_class = [x[y[:, c] > 0] for x, y in per_client]
        of_class = [x for x in of_class if len(x)]
        everything = np.concatenate(of_class)
        mean, n = everything.mean(0), len(everything)
        spread = sum(len(x) * np.outer(x.mean(0) - mean, x.mean(0) - mean) for x in of_class)
        covariance = spread / max(len(of_class) - 1, 1) + 0.02 * np.eye(len(mean))
        gram = gram + (n - 1) * covariance + n * np.outer(mean, mean)
    np.testing.assert_allclose(federation.server.params["gram"].numpy(), gram / n_all, atol=1e-12)
    cross = sum(x.T @ y for x, y in per_client) / n_all
    np.testing.assert_allclose(federation.server.params["cross"].numpy(), cross, atol=1e-12)


@pytest.mark.parametrize("name", ["ridge", "fedcof"])
def test_one_release_of_noisy_sums(name: str) -> None:
    """The noise is z times what one image moves the sums by, and epsilon that of one Gaussian mechanism."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    noise, sizes = 2.0, [40] * 60
    data = make_data(train=sizes, test=[1] * 60)
    given = private(make_settings(), unit="example", noise=noise)
    plain, noisy = (simulator(name, each, data=data) for each in (make_settings(), given))
    uploads = []
    for federation in (plain, noisy):
        ((clients, result),) = federation.train(federation.round_work(np.arange(60)))
        uploads.append(federation.upload(clients, result))
    added = torch.cat([(uploads[1][key] - uploads[0][key]).flatten() * 40 for key in uploads[0]])
    expected = noise * np.sqrt(2 if name == "fedcof" else 2 - 1 / 3)
    assert added.std().item() == pytest.approx(expected, rel=0.05)
    noisy.run_round()
    spent = RdpAccountant().compose(GaussianDpEvent(noise)).get_epsilon(1e-5)
    assert noisy.facts()["privacy"]["epsilon"] == pytest.approx(spent, rel=1e-6)


def test_the_share_of_an_image_in_the_sums_is_no_longer_than_is_said() -> None:
    for method in (Ridge(), FedCOF()):
        federation = simulator(method, task=make_task(torch.float64))
        image, labels = federation.data.train.read(np.arange(8)[:, None], 0, torch.device("cpu"), torch.float64)
        shares = method.statistics(federation.task, {}, Batch(image, labels))
        lengths = sum(value.flatten(1).square().sum(1) for value in shares.values()) ** 0.5
        torch.testing.assert_close(lengths, torch.full_like(lengths, method.sensitivity(federation.task)))


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_one_release_of_an_average_of_sites(clip: float) -> None:
    """Of everyone's means, shortened to the clip, whatever their numbers of images and `participation`."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    given = (make_settings(participation=0.2), 0.0), (make_settings(), 3.0)
    exact, noisy = (
        simulator("ridge", private(each, unit="site", noise=noise, clip=clip), task=make_task(torch.float64))
        for each, noise in given
    )
    sums = []
    for client in range(5):
        x, y = pooled(exact, [client])
        means = np.concatenate([(x.T @ x).ravel(), (x.T @ y).ravel()]) / len(x)
        sums.append(means * min(1, clip / np.linalg.norm(means)))
    exact.run_round()
    noisy.run_round()
    found = [federation.server.params for federation in (exact, noisy)]
    flat = torch.cat([found[0][name].flatten() for name in ("gram", "cross")])
    np.testing.assert_allclose(flat.numpy(), np.mean(sums, 0), atol=1e-12)
    added = torch.cat([(found[1][name] - found[0][name]).flatten() for name in ("gram", "cross")])
    assert added.std().item() == pytest.approx(3.0 * clip / 5, rel=0.15)
    spent = RdpAccountant().compose(GaussianDpEvent(3.0)).get_epsilon(1e-5)
    facts = noisy.facts()["privacy"]
    assert (facts["unit"], facts["releases"], facts["epsilon"]) == ("site", 1, pytest.approx(spent, rel=1e-6))


@pytest.mark.parametrize("unit", ["example", "site"])
def test_a_budget_is_of_one_release(unit: str) -> None:
    """The noise for one release is enough, whatever rounds, epochs and batches are set; a little less is refused."""
    settings = make_settings(rounds=9, local_epochs=5, batch_size=2)
    noise = noise_for(2.0, 1, 1e-5)
    federation = simulator("ridge", private(settings, unit=unit, noise=noise, epsilon=2.0))
    federation.run_round()
    facts = federation.facts()["privacy"]
    assert 1.98 < facts["epsilon"] <= 2
    assert "ended_the_run" not in facts
    with pytest.raises(FedotpError, match=r"privacy\.epsilon = 2: must be at least 2\.\d+, the cost of one round"):
        simulator("ridge", private(settings, unit=unit, noise=0.95 * noise, epsilon=2.0))


def test_what_private_sums_cannot_promise_is_refused() -> None:
    with pytest.raises(FedotpError, match=r"evaluation\.prior = 1\.0: must be 0 with privacy\.private = true"):
        simulator("ridge", private(make_settings(evaluation={"prior": 1.0}), unit="example", private=True))
    with pytest.raises(FedotpError, match=r'^privacy\.unit = "site": not supported for FedCOF, which has no average'):
        simulator("fedcof", private(make_settings(), unit="site"))
    with pytest.raises(FedotpError, match="group to its sums is not bounded"):
        simulator("ridge", private(make_settings(), unit="group"))
    with pytest.raises(FedotpError, match=r"federation\.prior = 0"):
        simulator("promptfl", private(make_settings(prior=1.0), unit="example"))


# The class prior -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["zeroshot", "promptfl", "fedotp", "ridge"])
def test_the_prior_is_added_to_the_logarithms_of_probabilities(method: str) -> None:
    """Recomputed from the plain scores of each client and its labels alone."""
    strength, smoothing = 0.7, 0.3
    plain = simulator(method, task=make_task(torch.float64))
    prior = simulator(method, make_settings(evaluation={"prior": strength}), task=make_task(torch.float64))
    for federation in (plain, prior):
        if federation.learns:
            federation.run_round()
    lines = prior.predict()
    for client in range(len(plain.data)):
        rows = plain.data.test.clients[client]
        image, _ = plain.data.test.read(rows[None], 0, torch.device("cpu"), torch.float64)
        scores = plain.predictor(np.array([client])).scores(image)[0]
        logits = scores * plain.task.logit_scale.exp()
        counts = np.bincount(plain.data.train.labels[plain.data.train.clients[client]], minlength=3) + smoothing
        p = torch.softmax(logits, -1).numpy() * (counts / counts.sum()) ** strength
        p /= p.sum(1, keepdims=True)
        own = lines.client == client
        order = np.argsort(lines.row[own])
        np.testing.assert_array_equal(lines.predicted[own][order], p.argmax(1)[np.argsort(rows)])
        expected = -np.log(p[np.arange(len(rows)), plain.data.test.labels[rows]])
        np.testing.assert_allclose(lines.loss[own][order], expected[np.argsort(rows)], atol=1e-10)


def test_novel_classes_have_no_prior() -> None:
    given = make_settings(evaluation={"prior": 1.0, "views": ("personal", "novel", "base")})
    plain = replace(given, evaluation=replace(given.evaluation, prior=0.0))
    with_prior, without = (
        Simulator(FedOTP(), make_task(), make_data(), each, novel=make_novel()) for each in (given, plain)
    )
    views = [{view.view: view.evaluation for view in each.see()} for each in (with_prior, without)]
    np.testing.assert_array_equal(views[0]["novel"].values["loss"], views[1]["novel"].values["loss"])
    assert not np.array_equal(views[0]["base"].values["loss"], views[1]["base"].values["loss"])


@pytest.mark.parametrize("method", ["promptfl", "fedotp", "fedpha", "fedmgp", "fedclip"])
def test_the_prior_in_the_loss_is_that_of_adjusted_logits(method: str) -> None:
    """One batch of one client: its loss is the cross-entropy of logits to which log frequencies are added."""
    one = make_data(train=[6], test=[2])
    plain, adjusted = (
        simulator(
            method, make_settings(batch_size=8, local_epochs=1, prior=prior), task=make_task(torch.float64), data=one
        )
        for prior in (0.0, 1.5)
    )
    federation = plain
    private = {name: value[None] for name, value in federation.method.private(federation.task).items()}
    received = federation.server.send(None, 1)
    image, labels = one.train.read(one.train.clients[0][None], 0, torch.device("cpu"), torch.float64)
    counts = torch.bincount(labels[0], minlength=3).double() + 0.3
    prior = 1.5 * (counts / counts.sum()).log()[None]
    params = federation.method.start(received, private)
    params |= federation.method.derived(federation.task, params, torch.ones(1, 3, dtype=torch.bool))
    expected = federation.method.loss(federation.task, params, received, Batch(image, labels, prior=prior))
    work = adjusted.round_work(np.array([0]))
    ((_, result),) = adjusted.train(work)
    torch.testing.assert_close(result.loss, expected.double(), atol=1e-9, rtol=0)
    ((_, result),) = plain.train(work)
    assert not torch.allclose(result.loss, expected.double(), atol=1e-3)


def test_adjusted_logits_are_those_of_the_definition() -> None:
    scores, labels = torch.randn(2, 3, 4, dtype=torch.float64), torch.tensor([[0, 3, -1], [2, 1, 1]])
    prior, scale = torch.randn(2, 4, dtype=torch.float64), torch.tensor(1.3, dtype=torch.float64)
    found = cross_entropy(scores, labels, scale, prior=prior)
    for client, n in ((0, 2), (1, 3)):
        p = torch.softmax(scores[client] * scale.exp() + prior[client], -1)
        expected = -sum(p[i, labels[client, i]].log() for i in range(n)) / n
        torch.testing.assert_close(found[client], expected)
