"""The shape of a CLIP, the shapes OpenAI published, and the backbone that comes with the package."""

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
    """The value if it is a whole number in these bounds; sizes come from files of others."""
    if type(value) is int and least <= value <= largest:
        return value
    shown = f"{value!r:.40}" if isinstance(value, int | float | str) else f"a {type(value).__name__}"
    raise FedotpError(f"{name} = {shown}: must be a whole number from {least} to {largest:,}")


def _check_sizes(shape: "VitConfig | ResNetConfig | TextConfig") -> None:
    tower = "text" if isinstance(shape, TextConfig) else "vision"
    for name, value in vars(shape).items():
        for size in value if isinstance(value, tuple) else [value]:
            largest = _DEEPEST if name == "layers" else _LARGEST
            check_whole(f"{tower}.{name}", size, least=0 if name == "eot" else 1, largest=largest)


def _check_heads(width: int, heads: int) -> None:
    if width % heads:
        raise FedotpError(f"{heads} attention heads do not divide the width {width}; choose a divisor of it")


def _check_grid(image_size: int, cell: int) -> None:
    if image_size < cell:
        raise FedotpError(f"an image of {image_size} pixels is smaller than a patch of {cell}")


@dataclass(frozen=True)
class VitConfig:
    """A vision transformer: `n_tokens = (image_size // patch_size) ** 2` patches of width `width`."""

    image_size: int
    patch_size: int
    width: int
    layers: int
    heads: int

    def __post_init__(self) -> None:
        _check_sizes(self)
        _check_heads(self.width, self.heads)
        _check_grid(self.image_size, self.patch_size)

    @property
    def grid(self) -> int:
        """Patches along one side of the image."""
        return self.image_size // self.patch_size


@dataclass(frozen=True)
class ResNetConfig:
    """CLIP's modified ResNet: four stages of bottlenecks, 32 pixels a grid cell, an attention pool on top.

    `width` is the number of channels after the stem; the attention pool works on `32 * width` channels.
    """

    image_size: int
    layers: tuple[int, int, int, int]
    width: int
    heads: int

    def __post_init__(self) -> None:
        if not isinstance(self.layers, tuple) or len(self.layers) != 4:
            raise FedotpError("vision.layers: must be the numbers of blocks in the four stages")
        _check_sizes(self)
        _check_heads(self.width * 32, self.heads)
        _check_grid(self.image_size, 32)

    @property
    def grid(self) -> int:
        """Cells along one side of the last feature map."""
        return self.image_size // 32


@dataclass(frozen=True)
class TextConfig:
    """The causal text transformer. `eot` is the id of the end-of-text token, where the feature is read."""

    vocab_size: int
    context_length: int
    width: int
    layers: int
    heads: int
    eot: int

    def __post_init__(self) -> None:
        _check_sizes(self)
        _check_heads(self.width, self.heads)
        if self.eot >= self.vocab_size:
            raise FedotpError(f"end-of-text id {self.eot} lies outside the vocabulary of {self.vocab_size}")


@dataclass(frozen=True)
class ClassTable:
    """In place of a text tower: the classes whose text features are known, in the order of their rows.

    `template` is the caption that the features were made of, `source` says where they come from.
    """

    names: tuple[str, ...]
    template: str
    source: str

    def __post_init__(self) -> None:
        if not (isinstance(self.names, tuple) and all(isinstance(name, str) and name.strip() for name in self.names)):
            raise FedotpError("text.names: must be a list of class names, none of them empty")
        if not 0 < len(self.names) <= _LARGEST or len(self.places) < len(self.names):
            raise FedotpError(f"text.names: must be from 1 to {_LARGEST:,} class names, each of them once")
        if not isinstance(self.source, str):
            raise FedotpError("text.source: must be a text that says where the features come from")
        if not isinstance(self.template, str) or self.template.count("{}") != 1:
            raise FedotpError("text.template: must be a caption with {} once, where the class name goes")

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each name; upper case and underscores make no difference."""
        return {_plain(name): row for row, name in enumerate(self.names)}

    def rows(self, names: Sequence[str]) -> list[int]:
        """The rows of these classes; those that it does not have are listed with the nearest that it has."""
        if missing := [name for name in names if _plain(name) not in self.places]:
            near = [nearest(_plain(name), self.places) for name in missing]
            shown = [
                one_line(name, 40) + (f" (nearest: {one_line(other, 40)})" if other else "")
                for name, other in zip(missing, near, strict=True)
            ]
            raise FedotpError(
                f"this backbone has no text tower, only features of {len(self.names):,} class names, and lacks "
                f"{listed(shown, 5)}; rename the classes, or add their features to its table"
            )
        return [self.places[_plain(name)] for name in names]


def _plain(name: str) -> str:
    return name.replace("_", " ").strip().casefold()


@dataclass(frozen=True)
class ClipConfig:
    """Everything that fixes a CLIP's tensor shapes and its computation, apart from the weights.

    `activation` is "quick_gelu" for OpenAI's weights and "gelu" for most of open_clip's own.
    """

    embed_dim: int
    vision: VitConfig | ResNetConfig
    text: TextConfig | ClassTable
    activation: Activation = "quick_gelu"

    def __post_init__(self) -> None:
        check_whole("embed_dim", self.embed_dim)
        if self.activation not in get_args(Activation):
            raise FedotpError(
                f"unknown activation {one_line(self.activation, 40)}; choose one of {', '.join(get_args(Activation))}"
            )

    @property
    def image_size(self) -> int:
        """Side of the square input image in pixels."""
        return self.vision.image_size

    @property
    def n_patches(self) -> int:
        """Patch tokens per image, V; the class token is not counted."""
        return self.vision.grid**2

    @property
    def text_tower(self) -> TextConfig:
        """The shape of the text tower; where there is none, the error says what works without one."""
        if isinstance(self.text, ClassTable):
            raise FedotpError(
                f"this backbone has no text tower, only features of {len(self.text.names):,} class names: "
                'set prompt.space = "features" (fedotp, promptfl, coop and others), or choose a method without prompts '
                "(zeroshot, fedclip, ridge, fedcof, personal-ridge)"
            )
        return self.text

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads back to an equal config."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "ClipConfig":
        """Inverse of `to_json`."""
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
"""OpenAI's published backbones, by OpenAI's names."""

TINY = ClipConfig(
    embed_dim=32,
    vision=VitConfig(image_size=32, patch_size=8, width=64, layers=2, heads=4),
    text=TextConfig(vocab_size=49408, context_length=77, width=64, layers=2, heads=4, eot=49407),
)
"""A toy with CLIP's own vocabulary (3 million parameters, 16 patches): for tests and demonstrations."""

MINI = "mini"
"""The backbone that comes with the package: small, truly pretrained, and there without a network (docs/mini.md)."""


def mini_file() -> Path:
    """Where the embedded weights are: 12 million parameters in float16, with config and tokenizer in the header."""
    return Path(str(resources.files("fedotp.clip") / "mini.safetensors"))
