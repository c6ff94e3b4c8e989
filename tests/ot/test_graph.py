"""Scores that can leave Python are those of `solve`, whatever the problem."""

import pytest
import torch

from fedotp import ot
from fedotp.clip import ImageFeatures
from fedotp.matching import Matching

# rule, reg, mass, N prompts, dial: shares of the mass
PROBLEMS = [
    ("unbalanced", 0.1, 0.99, 2, None),
    ("unbalanced", 0.1, 1.0, 2, None),  # all the mass there is: the classical problem
    ("unbalanced", 0.001, 0.9, 4, None),
    ("unbalanced", 0.05, 0.5, 1, None),
    ("unbalanced", 0.1, 0.8, 3, (0.5, 0.3, 0.2)),
    ("unbalanced", 0.1, 0.8, 2, (0.0, 1.0)),  # one prompt is turned off
    ("classical", 0.1, None, 2, None),
    ("classical", 0.02, None, 4, None),
    ("classical", 0.1, None, 3, (0.0, 0.5, 0.5)),
]


@pytest.mark.parametrize(("rule", "reg", "mass", "n", "shares"), PROBLEMS)
def test_scores_of_a_graph_are_those_of_the_solver(
    rule: ot.Rule, reg: float, mass: float, n: int, shares: object
) -> None:
    similar = (0.3 * torch.randn(3, 4, 25, n)).clamp(-1, 1)
    given = None if shares is None else torch.tensor(shares)
    exact = ot.score(similar.double(), rule=rule, reg=reg, mass=mass, shares=given)
    with ot.as_graph():
        found = ot.score(similar, rule=rule, reg=reg, mass=mass, shares=given)
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=0)
    assert found.dtype == torch.float32


def test_shares_of_each_image() -> None:
    """As the dial "confidence" gives them."""
    tokens, classes = torch.randn(1, 3, 9, 8), torch.randn(1, 2, 4, 8)
    weights = torch.tensor([[[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]]])
    image = ImageFeatures(torch.randn(1, 3, 8), tokens)
    plain = Matching()(image, classes, weights)
    with ot.as_graph():
        found = Matching()(image, classes, weights)
    torch.testing.assert_close(found, plain, atol=2e-5, rtol=0)
