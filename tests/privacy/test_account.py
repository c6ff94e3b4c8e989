"""Epsilon: the accountant called independently, textbook cases, and what one Gaussian release spends."""

import math

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent, rdp
from scipy.optimize import brentq
from scipy.stats import norm

from fedotp.errors import FedotpError
from fedotp.privacy import epsilon, noise_for

TEXTBOOK = {
    "DP-SGD on MNIST, the tutorial of TensorFlow Privacy": (1.1, 60 * 60_000 // 256, 1e-5, 256 / 60_000),
    "one hundred Gaussian releases": (20.0, 100, 1e-5, 1.0),
    "one Gaussian release, all take part": (2.0, 1, 1e-5, 1.0),
}


def independent(noise: float, n: int, delta: float, rate: float) -> float:
    """As the package's own documentation calls it."""
    release = GaussianDpEvent(noise)
    event = SelfComposedDpEvent(PoissonSampledDpEvent(rate, release) if rate < 1 else release, n)
    return rdp.RdpAccountant().compose(event).get_epsilon(delta)


def test_textbook_cases() -> None:
    """The tutorial: 2.92 by the conversion of 2019, less by the one of 2020; releases at noise z k are k^2 at z."""
    for case in TEXTBOOK.values():
        assert epsilon(*case) == pytest.approx(independent(*case), rel=1e-12)
    mnist, hundred, one = (epsilon(*case) for case in TEXTBOOK.values())
    assert 2.38 < mnist < 2.92  # 2.38 by privacy loss distributions
    assert hundred == pytest.approx(one, rel=1e-12)


def exact_gaussian(noise: float, delta: float) -> float:
    """Balle and Wang, ICML 2018: the least epsilon of one Gaussian release, sensitivity 1."""

    def excess(eps: float) -> float:
        a, b = 1 / (2 * noise), eps * noise
        return norm.cdf(a - b) - math.exp(eps) * norm.cdf(-a - b) - delta

    return brentq(excess, 1e-9, 500)


@pytest.mark.parametrize("noise", [0.7, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("n", [1, 30])
def test_no_gaussian_is_said_to_spend_less_than_it_does_nor_much_more(noise: float, n: int) -> None:
    exact = exact_gaussian(noise / math.sqrt(n), 1e-5)
    assert exact <= epsilon(noise, n, 1e-5) <= 1.2 * exact + 0.05


def test_sampling_is_rewarded_and_composition_is_paid_for() -> None:
    assert epsilon(1.0, 50, 1e-5, 0.1) < epsilon(1.0, 50, 1e-5, 0.2) < epsilon(1.0, 50, 1e-5)
    assert epsilon(1.0, 0, 1e-5) == 0
    assert epsilon(1.0, 10, 1e-5, 0.1) < epsilon(1.0, 20, 1e-5, 0.1) < 2 * epsilon(1.0, 10, 1e-5, 0.1)
    assert epsilon(0.0, 1, 1e-5) == math.inf


@pytest.mark.parametrize(("target", "rate"), [(1.0, 0.2), (8.0, 1.0)])
def test_noise_for_a_target_is_enough_and_hardly_more(target: float, rate: float) -> None:
    noise = noise_for(target, 40, 1e-5, rate)
    assert epsilon(noise, 40, 1e-5, rate) <= target < epsilon(0.985 * noise, 40, 1e-5, rate)


def test_a_target_out_of_reach_is_refused() -> None:
    with pytest.raises(FedotpError, match=r"cannot reach epsilon = 0.001 with 1000000000000000 releases"):
        noise_for(0.001, 10**15, 1e-5)
