"""Pictures of real, tiny runs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_made import COLOURS, make_run

import ot
from fedotp.errors import FedotpError
from fedotp.report import ImageMap, plot_curves, plot_maps, plot_plan_maps, plot_similarity, same_images, some_maps
from fedotp.report.figure import save_figure
from fedotp.runs.directory import RunDirectory


def test_maps_show_the_image_and_where_the_mass_goes(done: RunDirectory) -> None:
    maps = some_maps(done, 2, "client-1", masses=(0.5,))
    assert sorted(shown.label for shown in maps) == ["green", "red"]  # classes in turn
    for shown in maps:
        assert shown.kinds == ("global", "local")
        (plan,) = shown.plans.values()
        assert plan.shape == shown.similarity.shape == (2, 4, 4)
        np.testing.assert_allclose(plan.sum((1, 2)), 1, atol=1e-5)
        # columns carry mass / N, rows at most 1 / V: at mass 0.5 no patch holds more than a quarter of a column
        assert plan.max() <= 1 / 16 / (0.5 / 2) + 1e-5
        np.testing.assert_allclose(shown.image[16, 16] * 255, COLOURS[shown.label], atol=1)
        assert (np.abs(shown.similarity) <= 1).all()


def test_plans_of_maps_are_those_of_pot(done: RunDirectory) -> None:
    for shown in some_maps(done, 2, masses=(0.3, 0.9)):
        cost = 1 - shown.similarity.reshape(2, -1).T  # (V, N)
        for mass, plan in shown.plans.items():
            a, b = np.full(16, 1 / 16), np.full(2, mass / 2)
            expected = ot.partial.entropic_partial_wasserstein(a, b, cost, reg=0.1, m=mass, numItermax=10_000)
            np.testing.assert_allclose(plan.reshape(2, -1).T, expected / expected.sum(0), atol=1e-5)


def test_runs_side_by_side_show_the_same_images(done: RunDirectory, squares: Path, tmp_path: Path) -> None:
    others = [make_run(squares, tmp_path / name, name=name) for name in ("promptfl", "zeroshot")]
    maps = same_images([*others, done], 2)
    assert list(maps) == ["PromptFL", "Zero-shot CLIP", "FedOTP"]
    for one, other in zip(maps["FedOTP"], maps["PromptFL"], strict=True):
        np.testing.assert_array_equal(one.image, other.image)
        assert (one.client, one.label) == (other.client, other.label)
    assert maps["PromptFL"][0].kinds == ("global",)
    assert maps["Zero-shot CLIP"][0].kinds == ("caption",)
    figure = plot_similarity(maps)
    titles = [axis.get_title() for axis in figure.axes[:5]]
    assert titles[1:] == ["PromptFL", "Zero-shot CLIP", "FedOTP-G", "FedOTP-L"]
    divided = make_run(squares, tmp_path / "three", n_clients=3)
    with pytest.raises(FedotpError, match="must have the same partition"):
        same_images([done, divided])


def test_a_uniform_plan_leaves_the_picture_grey() -> None:
    shown = ImageMap(
        client="a",
        label="cat",
        predicted="dog",
        image=np.random.default_rng(0).random((8, 8, 3)),
        kinds=("global", "local"),
        similarity=np.zeros((2, 2, 2)),
        plans={0.5: np.stack([np.full((2, 2), 0.25), np.array([[0.7, 0.1], [0.1, 0.1]])])},
    )
    figure = plot_plan_maps([shown])
    uniform, peaked = (figure.axes[i].get_images()[0].get_array() for i in (1, 3))
    np.testing.assert_allclose(uniform, np.broadcast_to(uniform[..., :1], uniform.shape), atol=1e-6)
    assert peaked[0, 0, 0] > peaked[0, 0, 2]  # more than uniform: orange
    assert peaked[-1, -1, 0] < peaked[-1, -1, 2]  # less: blue
    assert "predicted: dog" in figure.axes[0].get_title()
    with pytest.raises(FedotpError, match="no transport plans to draw"):
        plot_plan_maps([ImageMap("a", "cat", "cat", shown.image, ("prompt",), np.zeros((1, 2, 2)), {})])


def test_pictures_can_be_saved(done: RunDirectory, tmp_path: Path) -> None:
    save_figure(plot_maps(some_maps(done, 2, "client-0", masses=(0.5,))), tmp_path / "maps.png")
    figure = plot_curves([done, done], ["one", "other"])
    with Image.open(tmp_path / "maps.png") as picture:
        assert picture.size[0] > 500
    (axes,) = figure.axes
    final = done.summary["final"]["accuracy"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        f"one  {100 * final:.1f} %",
        f"other  {100 * final:.1f} %",
    ]
    np.testing.assert_allclose(axes.lines[0].get_ydata()[-1], 100 * final)
    assert axes.lines[0].get_xdata().tolist() == [0, 1, 2]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_figure_is_the_same_file(done: RunDirectory, tmp_path: Path, ending: str) -> None:
    paths = [save_figure(plot_curves([done]), tmp_path / f"{i}.{ending}") for i in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with pytest.raises(FedotpError, match="png, svg or pdf"):
        save_figure(plot_curves([done]), tmp_path / "curves.gif")
