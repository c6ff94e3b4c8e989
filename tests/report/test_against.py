"""Accuracy against a setting: the numbers of the lines, and who makes one."""

import statistics

import pytest
from report_made import make_inputs, make_run

from fedotp.report import plot_against
from fedotp.report._curves import lines_against
from fedotp.runs.directory import RunDirectory


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunDirectory]:
    """FedOTP at two masses and two seeds, PromptFL with two seeds; their accuracies made up."""
    folder = tmp_path_factory.mktemp("against")
    inputs = make_inputs(folder)
    wanted = [
        *({"name": "fedotp", "mass": mass, "seed": seed} for mass in (0.9, 0.3) for seed in (0, 1)),
        *({"name": "promptfl", "seed": seed} for seed in (0, 1)),
    ]
    done = []
    for i, settings in enumerate(wanted):
        run = make_run(inputs, folder / f"run-{i}", **settings)
        summary = run.summary
        summary["final"]["accuracy"] = (i + 1) ** 2 / 100
        run.save_summary(summary)
        done.append(run)
    return done


def test_lines(runs: list[RunDirectory]) -> None:
    fedotp, promptfl = lines_against(runs, "method.mass")
    assert (fedotp.label, promptfl.label) == ("FedOTP", "PromptFL")
    assert fedotp.values == (0.3, 0.9)
    assert fedotp.mean == pytest.approx(((0.09 + 0.16) / 2, (0.01 + 0.04) / 2))
    assert fedotp.std == pytest.approx((statistics.stdev([0.09, 0.16]), statistics.stdev([0.01, 0.04])))
    assert promptfl.values == ()
    assert promptfl.mean == pytest.approx(((0.25 + 0.36) / 2,))


def test_the_figure(runs: list[RunDirectory]) -> None:
    figure = plot_against(runs, "method.mass")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "mass γ"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["PromptFL", "FedOTP"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.3", "0.9"]
    alone = plot_against(runs[:3:2], "method.mass")
    assert alone.axes[0].get_title("left") == "One seed"
