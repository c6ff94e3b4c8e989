"""Theorem 1, restated by hand, and what is measured of it."""

import math
from pathlib import Path

import numpy as np
import pytest
from report_made import make_run

from fedotp.errors import FedotpError
from fedotp.report import generalization_bound, measure_bound
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import StoredParameters


def test_the_formula() -> None:
    bound = generalization_bound(
        [30, 50],
        vc_dimension=4,
        radius_shared=0.5,
        radius_private=[3.0, 4.0],
        delta=0.1,
        lipschitz_loss=2.0,
        lipschitz_shared=0.25,
        lipschitz_private=[0.6, 0.8],
    )
    assert bound.deviation == pytest.approx(math.sqrt(80 / 2 * math.log(2 / 0.1)))
    assert bound.complexity == pytest.approx(math.sqrt(4 * 2 / 80 * math.log(math.e * 80 / 4)))
    assert bound.prompts == pytest.approx(2 * (0.25 * 0.5 + 1.0 * 5.0))  # L_l = |(0.6, 0.8)|, A_l = |(3, 4)|
    assert bound.value == pytest.approx(sum(bound.terms.values()))
    assert bound.deviation_mcdiarmid == pytest.approx(math.sqrt(math.log(20) / 160))
    assert bound.symbols == pytest.approx(
        {"M": 80, "N": 2, "d": 4, "delta": 0.1, "A_g": 0.5, "A_l": 5, "L": 2, "L_g": 0.25, "L_l": 1}
    )
    assert bound.is_vacuous


def test_fewer_examples_than_dimensions() -> None:
    """log(e M / d) would be negative; no class has more than 2^M labellings of M examples."""
    bound = generalization_bound([10, 10], vc_dimension=1000, radius_shared=0, radius_private=0)
    assert bound.complexity == pytest.approx(math.sqrt(2 * math.log(2)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"examples": []}, "one positive number"),
        ({"examples": [3, 0]}, "one positive number"),
        ({"delta": 1.0}, "delta = 1.0"),
        ({"vc_dimension": 0}, "vc_dimension = 0"),
        ({"radius_shared": -1}, "A_g = -1"),
        ({"radius_private": [1.0]}, "one for each of the 2 clients"),
        ({"lipschitz_loss": math.inf}, "L = inf"),
    ],
)
def test_bad_numbers_are_refused(changes: dict[str, object], message: str) -> None:
    right: dict[str, object] = {"examples": [3, 4], "vc_dimension": 2, "radius_shared": 1, "radius_private": 1}
    with pytest.raises(FedotpError, match=message):
        generalization_bound(**(right | changes))  # type: ignore[arg-type]


def test_what_a_run_tells(done: RunDirectory) -> None:
    bound = measure_bound(done, delta=0.2, lipschitz_shared=3.0)
    server, private, _ = StoredParameters.of(done)
    sizes = [len(client.train) for client in done.partition.clients]
    assert bound.symbols["M"] == sum(sizes)
    assert bound.symbols["N"] == 2
    assert bound.symbols["d"] == server["shared"].numel() + private["private"][0].numel()
    assert bound.symbols["A_g"] == pytest.approx(float(np.linalg.norm(server["shared"].numpy())), rel=1e-6)
    assert bound.symbols["A_l"] == pytest.approx(float(np.linalg.norm(private["private"].numpy())), rel=1e-6)
    assert bound.symbols["L_g"] == 3
    text = " ".join(bound.assumptions)
    assert "vacuous" in text
    assert "not measured" in text
    assert "Sauer" in text  # fewer images than values
    assert "stand-in" in text
    given = measure_bound(done, vc_dimension=2)
    assert "stand-in" not in " ".join(given.assumptions)
    assert "Sauer" not in " ".join(given.assumptions)


def test_it_is_about_prompts_that_share_patches(squares: Path, tmp_path: Path) -> None:
    with pytest.raises(
        FedotpError, match="Theorem 1 is about prompts that share the patches of an image, as in FedOTP; PromptFL looks"
    ):
        measure_bound(make_run(squares, tmp_path / "run", name="promptfl"))
