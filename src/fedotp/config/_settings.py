"""Settings of the data set and the backbone."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fedotp._values import require_choices, require_from, show
from fedotp.data.store import STORAGE, Storage
from fedotp.errors import FedotpError, SettingError
from fedotp.images import WINDOW, read_window, read_windows

_MOST_CROPS = 10_000  # each crop of each image is encoded and stored


@dataclass(frozen=True)
class DataSettings:
    """Images and their preprocessing. Relative folders are below the working directory, ~ is the home.

    Attributes:
        dataset: a name from `fedotp data list`, a folder of images, a *.csv table, or hf:<path> for the Hugging Face
            hub.
        root: the folder of named data sets; "" for the user's cache.
        crops: number of random crops and flips stored for each training image; 0 for its central crop in every epoch.
            The authors' code draws a new one every epoch: rounds x local_epochs crops.
        store: the folder of the token store; "" for the user's cache.
        storage: number format of stored tokens; "int8" takes half the space.
        precision: number format in which the image tower computes tokens; "bfloat16" is about three times as fast on a
            GPU.
        window: mapping of images of more than 8 bits to 8 bits: "file" uses the window in the file (DICOM), else the
            full range of the bit depth; "full" always uses the full range; "data" the range of values in each image;
            "40/400" is a centre and a width, "0..4095" a range, in the units of the file.
        windows: windows of single sites (or domains) whose files have other units, such as "oslo=-600/1500,
            bergen=0..65535".
        groups: a regular expression that finds the patient or other group in the path of an image below the data set's
            folder. Images of a group are never divided between train and test or between clients. "" for none.
        test_split: "val" tests on validation images, which are not used for training; use it to choose settings.
        skip_broken: skip images that cannot be decoded, instead of raising an error.
        labels: "shuffled" permutes the labels of each client's training images, as a control: only class frequencies
            can be learned.
        template: the caption of zero-shot CLIP, with {} for the class name; "" for the data set's own.
        classes: "all", or "base" for the first half in the order of labels, rounded up. Clients then have images of
            base classes only; the others are the novel classes of evaluation.views.
    """

    dataset: str = field(metadata={"right": "the name of a data set (see fedotp data list) or a folder"})
    root: str = ""
    crops: int = 0
    store: str = ""
    storage: Storage = STORAGE
    precision: Literal["float32", "bfloat16"] = "float32"
    window: str = WINDOW
    windows: str = ""
    groups: str = ""
    test_split: Literal["test", "val"] = "test"
    skip_broken: bool = False
    labels: Literal["true", "shuffled"] = "true"
    template: str = ""
    classes: Literal["all", "base"] = "all"

    def __post_init__(self) -> None:
        if not self.dataset:
            raise FedotpError('data.dataset = "": must be the name of a data set (see fedotp data list) or a folder')
        hint = " (0: the central crop; the authors' code: rounds x local_epochs)"
        require_from(0, _MOST_CROPS, "data.crops", self.crops, hint)
        require_choices(self, "data.")
        try:
            read_window(self.window)
            read_windows(self.windows)
        except SettingError as error:
            raise error.under("data") from None
        try:
            re.compile(self.groups)
        except re.error as error:
            right = f'a regular expression, for example "patient([0-9]+)" ({error})'
            raise SettingError("data.groups", show(self.groups), right) from None
        before, place, after = self.template.partition("{}")
        if self.template and (not place or set("{}") & set(before + after)):
            raise FedotpError(
                f"data.template = {show(self.template)}: must contain {{}} once, for the class name, "
                'for example "a photo of a {}."'
            )

    def window_of(self, site: str | None) -> str:
        """Return the window of a site or domain; None is for images of several sites."""
        return self.site_windows.get(site or "", self.window)

    @property
    def site_windows(self) -> dict[str, str]:
        """Windows of single sites, by name."""
        return read_windows(self.windows)

    @property
    def source(self) -> str:
        """`dataset` with ~ expanded, as for `fedotp.data.load_dataset`."""
        return os.path.expanduser(self.dataset)

    @property
    def root_folder(self) -> Path | None:
        """`root` as a path, None for the default."""
        return _folder(self.root)

    @property
    def store_folder(self) -> Path | None:
        """`store` as a path, None for the default."""
        return _folder(self.store)


@dataclass(frozen=True)
class BackboneSettings:
    """The frozen CLIP.

    Attributes:
        name: a backbone, for example "RN50", or the path of a checkpoint.
    """

    name: str = "ViT-B/16"

    def __post_init__(self) -> None:
        if not self.name:
            raise FedotpError('backbone.name = "": must be the name of a backbone, for example ViT-B/16, or a path')

    @property
    def source(self) -> str:
        """`name` with ~ expanded, as for `fedotp.clip.load`."""
        return os.path.expanduser(self.name)


def _folder(text: str) -> Path | None:
    return Path(os.path.expanduser(text)) if text else None
