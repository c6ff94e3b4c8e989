"""Advice before training: every number as refits by scikit-learn give it, with each image left out in turn."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel
from sklearn.linear_model import Ridge
from toy_federation import CLASSES, make_data, make_task, simulator, unit

from fedotp.errors import FedotpError
from fedotp.federation import FederatedData, HeldFeatures
from fedotp.methods import REGS, PersonalRidge, Task
from fedotp.runs.advice import (
    ALONE,
    CHOICES,
    GAINS,
    PERSONAL,
    SHARED,
    SHARED_PRIOR,
    SHARING,
    ZERO_SHOT,
    ZERO_SHOT_PRIOR,
    Advice,
    SiteAdvice,
    advise_sites,
)

SIZES = (17, 12, 19, 1)
K, SMOOTHING = len(CLASSES), 0.3


class Unreadable:
    """Features of images that must not be looked at."""

    n_crops = 1

    def read(self, *_: object, **__: object) -> None:
        pytest.fail("a test image was read")


def toy(sizes: tuple[int, ...] = SIZES) -> tuple[Task, FederatedData]:
    """Images of which many are hard, and test images that cannot be read; client i has two of the three classes."""
    data = make_data(train=sizes, test=[2] * len(sizes))
    held, noise = data.train.features, torch.Generator().manual_seed(6)
    assert isinstance(held, HeldFeatures)
    hard = HeldFeatures(*(x + 4 * torch.randn(x.shape, generator=noise) for x in (held.pooled, held.tokens)))
    test = replace(data.test, features=Unreadable())  # type: ignore[arg-type]
    return make_task(torch.float64), replace(data, train=replace(data.train, features=hard), test=test)


def refitted() -> tuple[list[dict[str, np.ndarray]], dict[str, float], list[float]]:
    """Of each site which images are right; the regs of all, and those of each site alone."""
    task, data = toy()
    rows, owner = np.concatenate(data.train.clients), np.repeat(np.arange(len(SIZES)), SIZES)
    image, label, n = data.train.features.read(rows, dtype=torch.float64), data.train.labels[rows], len(rows)
    pooled, captions = unit(image.pooled.numpy()), unit(task.template_features()[0, 0].numpy())
    x, y = unit(pooled + unit(unit(image.tokens.numpy()).mean(1))), np.eye(K)[label] - 1 / K
    logits = {name: np.zeros((len(REGS), n, K)) for name in (ALONE, SHARED, PERSONAL)}
    prior = np.zeros((n, K))
    for i in range(n):
        own, others = owner == owner[i], np.arange(n) != i
        counted = {ALONE: (1.0 * own, own.sum()), SHARED: (np.ones(n), n), PERSONAL: (1.0 + own, n)}
        for name, (counts, size) in counted.items():
            for r, reg in enumerate(REGS):
                logits[name][r, i] = 20 * x[i] @ captions.T
                if (counts * others).any():  # the only image of a site alone leaves the captions
                    ridge = Ridge(alpha=reg * size, fit_intercept=False, tol=1e-15, solver="cholesky")
                    ridge.fit(x, y - 2 * x @ captions.T, sample_weight=counts * others)
                    logits[name][r, i] += 10 * x[i] @ ridge.coef_.T
        smoothed = np.bincount(label[own & others], minlength=K) + SMOOTHING
        prior[i] = np.log(smoothed / smoothed.sum())
    loss = {
        name: np.log(np.exp(of).sum(-1)) - np.take_along_axis(of, label[None, :, None], -1)[..., 0]
        for name, of in logits.items()
    }
    loss[ALONE][REGS.index(0.03), owner == SIZES.index(1)] -= 1  # all are equal there, and this is the usual one
    best = {name: int(loss[name].mean(1).argmin()) for name in (SHARED, PERSONAL)}
    alone = [int(loss[ALONE][:, owner == site].mean(1).argmin()) for site in range(len(SIZES))]
    zero_shot = task.logit_scale.exp().item() * pooled @ captions.T
    found = {
        ZERO_SHOT: zero_shot,
        ZERO_SHOT_PRIOR: zero_shot + prior,
        ALONE: logits[ALONE][np.array(alone)[owner], np.arange(n)] + prior,
        SHARED: logits[SHARED][best[SHARED]],
        SHARED_PRIOR: logits[SHARED][best[SHARED]] + prior,
        PERSONAL: logits[PERSONAL][best[PERSONAL]] + prior,
    }
    right = [{name: (of.argmax(1) == label)[owner == site] for name, of in found.items()} for site in range(len(SIZES))]
    return right, {name: REGS[at] for name, at in best.items()}, [REGS[at] for at in alone]


def test_every_prediction_is_that_of_a_refit_without_the_image() -> None:
    """Test images cannot be read here."""
    advice = advise_sites(*toy(), SMOOTHING)
    right, regs, alone = refitted()
    assert (advice.regs, [site.reg for site in advice.sites]) == (regs, alone)
    for site, expected in zip(advice.sites, right, strict=True):
        assert site.right.keys() == expected.keys()
        for name, of in expected.items():
            np.testing.assert_array_equal(site.right[name], of, err_msg=f"{site.name}, {name}")
    assert len({tuple(np.concatenate([site.right[name] for site in advice.sites])) for name in right[0]}) == 6


def test_the_personal_ridge_of_a_federation_chooses_the_same_reg() -> None:
    task, data = toy()
    federation = simulator("personal-ridge", task=task, data=data)
    federation.run_round()
    federation.run_round()
    expected = PersonalRidge().reg_of(federation.server.params).item()
    assert advise_sites(task, data, SMOOTHING).regs[PERSONAL] == expected


def test_gains_are_paired_over_sites_and_over_the_images_of_a_site() -> None:
    advice = advise_sites(*toy((40, 30, 35)), SMOOTHING)
    for gain, (ours, theirs) in GAINS.items():
        sites = [(advice.gains[gain], *([site.accuracy[name] for site in advice.sites] for name in (ours, theirs)))]
        images = [(site.gains[gain], 1.0 * site.right[ours], 1.0 * site.right[theirs]) for site in advice.sites]
        for found, one, other in (*sites, *images):
            assert found.mean == pytest.approx(np.mean(one) - np.mean(other), abs=1e-9)
            if np.ptp(np.subtract(one, other)) > 1e-9:
                interval = ttest_rel(one, other).confidence_interval(0.95)
                assert (found.low, found.high) == pytest.approx(tuple(interval), abs=1e-9)


def invented(**accuracy: list[float]) -> Advice:
    """Advice of sites with 100 images, of which each classifier has so many percent right."""
    names = dict(zip(("zero", "alone", "shared", "personal"), CHOICES, strict=True))
    sites = []
    for at in range(len(accuracy["zero"])):
        right = {names[key]: np.arange(100) < values[at] for key, values in accuracy.items()}
        sites.append(
            SiteAdvice(f"site {at}", {ZERO_SHOT: right[ZERO_SHOT_PRIOR], SHARED: right[SHARED_PRIOR]} | right, 1)
        )
    return Advice(tuple(sites), {SHARED: 0.01, PERSONAL: 0.1})


def test_what_is_recommended_and_when_it_is_not_significant() -> None:
    clear = invented(zero=[50, 52, 51], alone=[60, 61, 59], shared=[70, 71, 69], personal=[80, 82, 81])
    assert (clear.best, clear.settings) == (PERSONAL, ["method.name=personal-ridge"])
    assert [line.partition(":")[0] for line in clear.sentences] == ["Recommended", "Federating helps"]
    assert "of 3 sites, 3 gain significantly on their own images, and 0 lose" in clear.sentences[-1]
    equal = invented(zero=[40, 49, 31], alone=[80, 70, 60], shared=[70, 80, 62], personal=[70, 80, 62])
    assert (equal.best, equal.settings[2]) == (SHARED_PRIOR, "method.reg=0.01")
    assert "Not significantly better than each site alone, without a federation: +0.67" in equal.sentences[1]
    assert "has no significant effect" in equal.sentences[-1]
    harm = invented(zero=[50, 52, 51], alone=[80, 82, 81], shared=[70, 71, 69], personal=[70, 71, 70])
    assert (harm.best, harm.settings, harm.gains[SHARING].is_below) == (ALONE, [], True)
    assert "Federating hurts: -10.67" in harm.sentences[-1]


def test_one_site_has_no_one_to_share_with() -> None:
    with pytest.raises(FedotpError, match="advice needs at least 2 sites with training images, got 1"):
        advise_sites(*toy((5, 0)), SMOOTHING)
