"""Pictures of a real, tiny run."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coloured_squares import draw_squares
from fedotp.clip import CLIP, TINY, save
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.report import plot_curves, plot_maps, transport_maps
from fedotp.runs import RunDirectory, run

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30)}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("report")
    save(CLIP.random(TINY), folder / "tiny.safetensors")
    draw_squares(folder / "data", COLOURS, 10)
    tables = {
        "data": {"dataset": str(folder / "data"), "store": str(folder / "store")},
        "backbone": {"name": str(folder / "tiny.safetensors")},
        "partition": {"scheme": "iid", "n_clients": 2},
        "prompt": {"n_ctx": 2},
        "method": {"name": "fedotp", "mass": 0.5},
        "federation": {"rounds": 2, "local_epochs": 1},
    }
    return run(Config.from_dict(tables), folder / "run")


def test_maps_show_the_image_and_where_the_mass_goes(done: RunDirectory) -> None:
    maps = transport_maps(done.path, "client-1", n_images=2)
    assert sorted(shown.label for shown in maps) == ["green", "red"]  # classes in turn
    for shown in maps:
        assert shown.kinds == ("global", "local")
        assert shown.plan.shape == shown.similarity.shape == (2, 4, 4)
        np.testing.assert_allclose(shown.plan.sum((1, 2)), 1, atol=1e-5)
        # columns carry mass / N, rows at most 1 / V: at mass 0.5 no patch holds more than a quarter of a column
        assert shown.plan.max() <= 1 / 16 / (0.5 / 2) + 1e-5
        np.testing.assert_allclose(shown.image[16, 16] * 255, COLOURS[shown.label], atol=1)
        assert (np.abs(shown.similarity) <= 1).all()


def test_pictures_can_be_saved(done: RunDirectory, tmp_path: Path) -> None:
    plot_maps(transport_maps(done.path, "client-0", n_images=2)).savefig(tmp_path / "maps.png")
    figure = plot_curves([done, done], ["one", "other"])
    figure.savefig(tmp_path / "curves.svg")
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


def test_a_client_that_is_not_there_is_refused(done: RunDirectory) -> None:
    with pytest.raises(FedotpError, match="no client 'nobody'; its clients are client-0, client-1"):
        transport_maps(done.path, "nobody")
