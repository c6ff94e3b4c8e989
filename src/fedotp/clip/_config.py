"""Configurations of CLIP, those published by OpenAI, and the bundled backbone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

from fedotp._text import one_line
from fedotp.errors import FedotpError, listed, nearest

Activation = Literal["quick_gelu", "gelu"]


_LARGEST = 1 << 20
_DEEPEST = 512  # the deepest published has 56 layers


def check_whole(name: str, value: object, *, least: int = 1, largest: int = _LARGEST) -> int:
    """Require a whole number in these bounds; sizes come from untrusted files."""
    if type(value) is int and least <= value <= largest:
        return value
    shown = f"{value!r:.40}" if isinstance(value, int | float | str) else f"a {type(value).__name__}"
    raise FedotpError(f"{name} = {shown}: must be a whole number from {least} to {largest:,}")


def _check_sizes(shape: "VitConfig | ResNetConfig | TextConfig", width: int, cell: int = 0) -> None:
    """Check the sizes of a tower; `width` is that of its attention, `cell` the side of a patch in pixels."""
    tower = "text" if isinstance(shape, TextConfig) else "vision"
    for name, value in vars(shape).items():
        for size in value if isinstance(value, tuple) else [value]:
            largest = _DEEPEST if name == "layers" else _LARGEST
            check_whole(f"{tower}.{name}", size, least=0 if name == "eot" else 1, largest=largest)
    if width % shape.heads:
        raise FedotpError(f"heads = {shape.heads}: must be a divisor of the width {width}")
    if not isinstance(shape, TextConfig) and shape.image_size < cell:
        raise FedotpError(f"image_size = {shape.image_size}: must be at least the patch size, {cell}")


@dataclass(frozen=True)
class VitConfig:
    """A vision transformer: `n_tokens = (image_size // patch_size) ** 2` patches of width `width`."""

    image_size: int
    patch_size: int
    width: int
    layers: int
    heads: int

    def __post_init__(self) -> None:
        _check_sizes(self, self.width, self.patch_size)

    @property
    def grid(self) -> int:
        """Number of patches along one side of the image."""
        return self.image_size // self.patch_size


@dataclass(frozen=True)
class ResNetConfig:
    """CLIP's modified ResNet: four stages of bottlenecks, 32 pixels per grid cell, and an attention pool.

    `width` is the number of channels after the stem; the attention pool has `32 * width` channels.
    """

    image_size: int
    layers: tuple[int, int, int, int]
    width: int
    heads: int

    def __post_init__(self) -> None:
        if not isinstance(self.layers, tuple) or len(self.layers) != 4:
            raise FedotpError("vision.layers: must be four numbers of blocks, one for each stage")
        _check_sizes(self, self.width * 32, 32)

    @property
    def grid(self) -> int:
        """Number of cells along one side of the last feature map."""
        return self.image_size // 32


@dataclass(frozen=True)
class TextConfig:
    """The causal text transformer. `eot` is the id of the end-of-text token, the position of the feature."""

    vocab_size: int
    context_length: int
    width: int
    layers: int
    heads: int
    eot: int

    def __post_init__(self) -> None:
        _check_sizes(self, self.width)
        if self.eot >= self.vocab_size:
            raise FedotpError(f"eot = {self.eot}: must be less than the size of the vocabulary, {self.vocab_size}")


@dataclass(frozen=True)
class ClassTable:
    """Replacement of a text tower: class names with known text features, in the order of their rows.

    `template` is the caption of the features, `source` their origin.
    """

    names: tuple[str, ...]
    template: str
    source: str

    def __post_init__(self) -> None:
        if not (isinstance(self.names, tuple) and all(isinstance(name, str) and name.strip() for name in self.names)):
            raise FedotpError("text.names: must be a list of non-empty class names")
        if not 0 < len(self.names) <= _LARGEST or len(self.places) < len(self.names):
            raise FedotpError(f"text.names: must be from 1 to {_LARGEST:,} different class names")
        if not isinstance(self.source, str):
            raise FedotpError("text.source: must be a text that describes the origin of the features")
        if not isinstance(self.template, str) or self.template.count("{}") != 1:
            raise FedotpError("text.template: must be a caption with one {} in place of the class name")

    @cached_property
    def places(self) -> dict[str, int]:
        """Row of each name; case and underscores are ignored."""
        return {_plain(name): row for row, name in enumerate(self.names)}

    def rows(self, names: Sequence[str]) -> list[int]:
        """Return the rows of these classes; the error for missing ones suggests the nearest names."""
        if missing := [name for name in names if _plain(name) not in self.places]:
            near = [nearest(_plain(name), self.places) for name in missing]
            shown = [
                one_line(name, 40) + (f" (nearest: {one_line(other, 40)})" if other else "")
                for name, other in zip(missing, near, strict=True)
            ]
            raise FedotpError(
                f"this backbone has no text tower, only features of {len(self.names):,} class names, without "
                f"{listed(shown, 5)}; rename the classes, or add their features to its table"
            )
        return [self.places[_plain(name)] for name in names]


def _plain(name: str) -> str:
    return name.replace("_", " ").strip().casefold()


@dataclass(frozen=True)
class ClipConfig:
    """Configuration of a CLIP: everything except the weights.

    `activation` is "quick_gelu" for OpenAI's weights and "gelu" for most of open_clip's.
    """

    embed_dim: int
    vision: VitConfig | ResNetConfig
    text: TextConfig | ClassTable
    activation: Activation = "quick_gelu"

    def __post_init__(self) -> None:
        check_whole("embed_dim", self.embed_dim)
        if self.activation not in get_args(Activation):
            choices = " or ".join(get_args(Activation))
            raise FedotpError(f"activation = {one_line(self.activation, 40)}: must be {choices}")

    @property
    def image_size(self) -> int:
        """Side of the square input image in pixels."""
        return self.vision.image_size

    @property
    def n_patches(self) -> int:
        """Number V of patch tokens per image, without the class token."""
        return self.vision.grid**2

    @property
    def text_tower(self) -> TextConfig:
        """Configuration of the text tower; the error, if there is none, lists alternatives."""
        if isinstance(self.text, ClassTable):
            raise FedotpError(
                f"this backbone has no text tower, only features of {len(self.text.names):,} class names: "
                'set prompt.space = "features" (fedotp, promptfl, coop and others), or use a method without prompts '
                "(zeroshot, fedclip, ridge, fedcof, personal-ridge)"
            )
        return self.text

    def to_json(self) -> str:
        """Return one line of JSON for `from_json`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "ClipConfig":
        """Parse the JSON of `to_json`."""
        try:
            fields = json.loads(text)
            vision = fields.pop("vision")
            tower = (
                VitConfig(**vision)
                if "patch_size" in vision
                else ResNetConfig(**{**vision, "layers": tuple(vision["layers"])})
            )
            of_text = fields.pop("text")
            if isinstance(names := of_text.get("names"), list):
                of_text["names"] = tuple(names)
            table_or_tower = ClassTable(**of_text) if "names" in of_text else TextConfig(**of_text)
            return cls(vision=tower, text=table_or_tower, **fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FedotpError(f"not a CLIP configuration: {one_line(repr(error))}") from error


def _openai(embed_dim: int, vision: VitConfig | ResNetConfig, text_width: int) -> ClipConfig:
    text = TextConfig(
        vocab_size=49408, context_length=77, width=text_width, layers=12, heads=text_width // 64, eot=49407
    )
    return ClipConfig(embed_dim, vision, text)


CONFIGS: Mapping[str, ClipConfig] = MappingProxyType(
    {
        "ViT-B/32": _openai(512, VitConfig(224, patch_size=32, width=768, layers=12, heads=12), 512),
        "ViT-B/16": _openai(512, VitConfig(224, patch_size=16, width=768, layers=12, heads=12), 512),
        "ViT-L/14": _openai(768, VitConfig(224, patch_size=14, width=1024, layers=24, heads=16), 768),
        "RN50": _openai(1024, ResNetConfig(224, layers=(3, 4, 6, 3), width=64, heads=32), 512),
        "RN101": _openai(512, ResNetConfig(224, layers=(3, 4, 23, 3), width=64, heads=32), 512),
    }
)
"""OpenAI's published backbones by name."""

TINY = ClipConfig(
    embed_dim=32,
    vision=VitConfig(image_size=32, patch_size=8, width=64, layers=2, heads=4),
    text=TextConfig(vocab_size=49408, context_length=77, width=64, layers=2, heads=4, eot=49407),
)
"""A tiny model with CLIP's vocabulary (3 million parameters, 16 patches) for tests and demonstrations."""

MINI = "mini"
"""The bundled backbone: small, pretrained, and usable without a network (docs/mini.md)."""


def mini_file() -> Path:
    """Return the path of the bundled weights: 12 million float16 parameters, with config and tokenizer."""
    return Path(str(resources.files("fedotp.clip") / "mini.safetensors"))
