"""Where images and weights come from."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fedotp._values import require_choices, require_from, show
from fedotp.data.store import STORAGE, Storage
from fedotp.errors import FedotpError, SettingError
from fedotp.images import RIGHT_WINDOW, RIGHT_WINDOWS, WINDOW, read_window, read_windows

_MOST_CROPS = 10_000  # every one of every image is encoded and stored


@dataclass(frozen=True)
class DataSettings:
    """The images and how clients see them. Relative folders are below the working directory, ~ is the home.

    Attributes:
        dataset: a name of `fedotp data list`, a folder of images, a table of them (*.csv), or hf:<path> for the Hugging
            Face hub.
        root: the folder below which named data sets are looked for; "" for the user's cache.
        crops: random crops and flips drawn ahead for each training image, 0 for its central crop in every epoch. The
            authors' code draws a new one every epoch: rounds x local_epochs crops.
        store: the folder of the token store; "" for the user's cache.
        storage: how tokens are stored; "int8" takes half the space.
        precision: what the image tower computes tokens in; "bfloat16" is some three times as fast on a GPU.
        window: how pictures of more than 8 bits are seen: "file" as the file says (DICOM's window), else in the full
            range of the bit depth; "full" in that in any case; "data" from the least to the largest value of each;
            "40/400" a centre and a width, "0..4095" a range, in the values of the file.
        windows: those of single sites (or domains) whose files have other units, such as "oslo=-600/1500,
            bergen=0..65535".
        groups: a regular expression that finds in the path of an image, below the data set's folder, the patient or the
            part it is of. Images of a group stay on one side of the split and with one client. "" for none.
        test_split: "val" tests on validation images instead, which are not trained on: to choose settings by.
        skip_broken: leave out images that cannot be decoded; they are an error otherwise.
        labels: "shuffled" gives every client's training images each other's labels, drawn from the seed: a control,
            from which nothing can be learned but how frequent classes are.
        template: the caption of zero-shot CLIP, with {} for the class name; "" for the data set's own.
        classes: "all", or "base" for the first half of them in the order of their labels, rounded up. Clients then have
            images of base classes only; the others are the novel ones of evaluation.views.
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
        except FedotpError:
            raise SettingError("data.window", show(self.window), RIGHT_WINDOW) from None
        try:
            read_windows(self.windows)
        except FedotpError as error:
            raise SettingError("data.windows", show(self.windows), f"such as {RIGHT_WINDOWS} ({error})") from None
        try:
            re.compile(self.groups)
        except re.error as error:
            right = f'a regular expression, for example "patient([0-9]+)" ({error})'
            raise SettingError("data.groups", show(self.groups), right) from None
        if self.template and not _is_caption(self.template):
            raise FedotpError(
                f"data.template = {show(self.template)}: must have {{}} once, where the class name goes, "
                'for example "a photo of a {}."'
            )

    def window_of(self, site: str | None) -> str:
        """The window of the site or domain called so; None for images of several."""
        return self.site_windows.get(site or "", self.window)

    @property
    def site_windows(self) -> dict[str, str]:
        """The windows of single sites, by name."""
        return read_windows(self.windows)

    @property
    def source(self) -> str:
        """`dataset` as `fedotp.data.load_dataset` takes it, ~ replaced."""
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
        """`name` as `fedotp.clip.load` takes it, ~ replaced."""
        return os.path.expanduser(self.name)


def _folder(text: str) -> Path | None:
    return Path(os.path.expanduser(text)) if text else None


def _is_caption(template: str) -> bool:
    """Whether `template` has one place for the name and no other braces."""
    before, place, after = template.partition("{}")
    return bool(place) and not set("{}") & set(before + after)
