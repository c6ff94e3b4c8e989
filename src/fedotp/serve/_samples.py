"""A few test images of a run's clients, to try the page with."""

from functools import cached_property
from pathlib import Path

from PIL.Image import Image

from fedotp.data import Dataset, Split
from fedotp.errors import FedotpError
from fedotp.report import in_turn
from fedotp.runs import RunDirectory, load_data

_EACH = 8


class Samples:
    """Test images of the clients of `run`; none where its data are not here, or are no longer the same."""

    def __init__(self, run: RunDirectory) -> None:
        """Nothing is read before it is asked for."""
        self._run = run

    @classmethod
    def of_run(cls, path: Path) -> "Samples | None":
        """Those of the run at `path`; None where that is a bundle, or its data are at sites of their own."""
        return cls(RunDirectory(path)) if (path / "partition.json").is_file() else None

    def of(self, client: str) -> list[tuple[Image, str]]:
        """Test images of `client`, its classes in turn, with the names of their classes."""
        rows = next((each.test for each in self._run.partition.clients if each.name == client), None)
        if self._dataset is None or rows is None:
            return []
        test, classes = self._dataset.test, self._dataset.classes
        chosen = in_turn(rows, test.labels)[:_EACH].tolist()
        return [(picture, classes[test.labels[row]]) for row in chosen if (picture := _image(test, row)) is not None]

    @cached_property
    def _dataset(self) -> Dataset | None:
        data = self._run.config.data
        try:
            dataset = load_data(data)
            dataset = dataset.base_and_novel()[0] if data.classes == "base" else dataset
        except FedotpError:
            return None
        return dataset if dataset.digest == self._run.manifest["data"]["digest"] else None


def _image(split: Split, row: int) -> Image | None:
    try:
        return split.image(row)
    except FedotpError:
        return None  # broken: there are others
