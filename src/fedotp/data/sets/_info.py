"""What is known of a data set before it is read."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedotp.data.sets._dataset import Dataset
from fedotp.data.sets._download import Resource


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set; the sizes are the paper's or those of its usual split, for the data in the box their own.

    `folder` is its usual place below the root, `others` are further names of that; any of the `markers` (a file, or a
    folder with a slash at the end) tells its layout from others; `template` is the caption of zero-shot CLIP (CoOp's);
    `advice` says what a person may have to fetch by hand. A data set `in_box` comes with the package and has no folder.
    """

    name: str
    title: str
    folder: str
    markers: tuple[str, ...]
    read: Callable[[Path], Dataset]
    n_classes: int
    n_domains: int
    n_train: int
    n_test: int
    template: str
    resources: tuple[Resource, ...]
    advice: str = ""
    in_box: bool = False
    others: tuple[str, ...] = ()

    def is_at(self, folder: Path) -> bool:
        """Tell whether `folder` has this data set's layout."""
        return any(
            os.path.isdir(folder / marker) if marker.endswith("/") else os.path.isfile(folder / marker)
            for marker in self.markers
        )
