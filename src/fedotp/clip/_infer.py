"""Inference of a checkpoint's architecture from its tensor shapes and configuration files; names of tensors."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedotp._text import one_line
from fedotp.clip._config import ClassTable, ClipConfig, ResNetConfig, TextConfig, VitConfig, check_whole
from fedotp.clip._tensor_files import WANTED
from fedotp.clip._tokenizer import Tokenizer
from fedotp.errors import FedotpError

_LARGEST_JSON = 1 << 20  # bytes
_HEAD_WIDTH = 64  # in all of OpenAI's CLIPs


class Hints(NamedTuple):
    """Properties that tensor shapes do not determine."""

    activation: str | None = None
    vision_heads: int | None = None
    text_heads: int | None = None


def hugging_face_hints(folder: Path) -> Hints:
    """Read the `config.json` of transformers in the folder of the weights."""
    config = _read_json(folder / "config.json")
    alone = config if config.get("model_type") == "clip_vision_model" else {}  # an image tower only
    vision, text = alone or _section(config, "vision_config"), alone or _section(config, "text_config")
    activations = {one_line(tower.get("hidden_act", "quick_gelu"), 40) for tower in (vision, text)}
    if len(activations) > 1:
        raise FedotpError(f"different activations of the towers are not supported: {', '.join(sorted(activations))}")
    heads = "num_attention_heads"
    return Hints(activations.pop(), _whole(vision, heads, "vision_config"), _whole(text, heads, "text_config"))


def open_clip_hints(folder: Path) -> Hints:
    """Read the `open_clip_config.json` of open_clip in the folder of the weights."""
    config = _section(_read_json(folder / "open_clip_config.json"), "model_cfg")
    if not config:
        return Hints()
    vision, text = _section(config, "vision_cfg"), _section(config, "text_cfg")
    head_width, width = (_whole(vision, name, "vision_cfg") for name in ("head_width", "width"))
    return Hints(
        activation="quick_gelu" if config.get("quick_gelu") else "gelu",
        vision_heads=width // head_width if head_width and width else None,
        text_heads=_whole(text, "heads", "text_cfg"),
    )


def infer_config(
    tensors: Mapping[str, Tensor], hints: Hints, tokenizer: Tokenizer | None, table: ClassTable | None = None
) -> ClipConfig:
    """Infer the config of tensors with OpenAI's names; heads have the width 64 without hints.

    With a `table` of classes no text tower is needed.
    """
    shape = _Shapes(tensors)
    text = table or _text(shape, hints, tokenizer)
    is_resnet = "visual.attnpool.c_proj.weight" in tensors
    vision = _resnet(shape) if is_resnet else _vit(shape, hints)
    embed_dim = shape("visual.attnpool.c_proj.weight", 2)[0] if is_resnet else shape("visual.proj", 2)[1]
    return ClipConfig(embed_dim, vision, text, hints.activation or "quick_gelu")  # type: ignore[arg-type]


def _text(shape: "_Shapes", hints: Hints, tokenizer: Tokenizer | None) -> TextConfig:
    text_width, _ = shape("text_projection", 2)
    vocab_size, _ = shape("token_embedding.weight", 2)
    return TextConfig(
        vocab_size=vocab_size,
        context_length=shape("positional_embedding", 2)[0],
        width=text_width,
        layers=shape.count("transformer.resblocks."),
        heads=_heads(text_width) if hints.text_heads is None else hints.text_heads,
        eot=tokenizer.eot if tokenizer else vocab_size - 1,  # the last id in CLIP, not in every BPE
    )


def check_depth(config: ClipConfig, tensors: Mapping[str, Tensor]) -> None:
    """Require that config and tensors have the same number of layers, before a model is built."""
    shape, vision = _Shapes(tensors), config.vision
    towers = {"transformer.resblocks.": config.text.layers} if isinstance(config.text, TextConfig) else {}
    if isinstance(vision, VitConfig):
        towers["visual.transformer.resblocks."] = vision.layers
    else:
        towers |= {f"visual.layer{stage}.": layers for stage, layers in enumerate(vision.layers, start=1)}
    for prefix, layers in towers.items():
        if shape.count(prefix) != layers:
            n_there = shape.count(prefix)
            raise FedotpError(f"its configuration has {layers} layers {prefix}*, but the file has {n_there}")


class _Shapes:
    """Shapes of tensors by name; one that is missing, empty or of the wrong rank is an error."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def __call__(self, name: str, rank: int) -> tuple[int, ...]:
        if name not in self._tensors:
            raise FedotpError(f"not a CLIP: it has no tensor {name}; {WANTED}")
        shape = tuple(self._tensors[name].shape)
        if len(shape) != rank or 0 in shape:
            raise FedotpError(f"not a CLIP: its tensor {name} has the shape {shape}; {WANTED}")
        return shape

    def count(self, prefix: str) -> int:
        """Count the different numbers after the prefix."""
        return len({n[len(prefix) :].split(".")[0] for n in self._tensors if n.startswith(prefix)})


def _vit(shape: _Shapes, hints: Hints) -> VitConfig:
    width, _, patch_size, _ = shape("visual.conv1.weight", 4)
    return VitConfig(
        image_size=patch_size * _grid(shape("visual.positional_embedding", 2)),
        patch_size=patch_size,
        width=width,
        layers=shape.count("visual.transformer.resblocks."),
        heads=_heads(width) if hints.vision_heads is None else hints.vision_heads,
    )


def _resnet(shape: _Shapes) -> ResNetConfig:
    width = shape("visual.layer1.0.conv1.weight", 4)[0]
    a, b, c, d = (shape.count(f"visual.layer{stage}.") for stage in (1, 2, 3, 4))
    return ResNetConfig(
        image_size=32 * _grid(shape("visual.attnpool.positional_embedding", 2)),
        layers=(a, b, c, d),
        width=width,
        heads=_heads(32 * width),
    )


def _heads(width: int) -> int:
    if width > _HEAD_WIDTH and width % _HEAD_WIDTH:
        raise FedotpError(
            f"unknown number of heads for the width {width}; put the config file of the weights into their folder"
        )
    return max(1, width // _HEAD_WIDTH)


def _grid(shape: tuple[int, ...]) -> int:
    n_patches = shape[0] - 1
    grid = math.isqrt(n_patches)
    if grid**2 != n_patches:
        raise FedotpError(f"its {n_patches} image positions must form a square")
    return grid


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a configuration, empty if it is missing."""
    section = config.get(name) or {}
    if not isinstance(section, dict):
        raise FedotpError(f"its configuration is invalid: {name} must be an object, not a {type(section).__name__}")
    return section


def _whole(section: dict[str, Any], name: str, where: str) -> int | None:
    value = section.get(name)
    return None if value is None else check_whole(f"its configuration is invalid: {where}.{name}", value)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    if not path.is_file() or path.stat().st_size > _LARGEST_JSON:
        raise FedotpError(f"{path.name} in its folder is not a configuration file")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FedotpError(f"cannot read {path.name} in its folder: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise FedotpError(f"{path.name} in its folder is not a JSON object")
    return content


# Conversion of Hugging Face's tensor names to OpenAI's --------------------------------------------------------

# Applied in this order to each name.
_RENAMES = (
    (r"^text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^text_model\.final_layer_norm\.", "ln_final."),
    (r"^text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"^text_projection\.weight$", "text_projection"),
    (r"^vision_model\.embeddings\.class_embedding$", "visual.class_embedding"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "visual.conv1."),
    (r"^vision_model\.embeddings\.position_embedding\.weight$", "visual.positional_embedding"),
    (r"^vision_model\.pre_layrnorm\.", "visual.ln_pre."),
    (r"^vision_model\.post_layernorm\.", "visual.ln_post."),
    (r"^vision_model\.encoder\.layers\.", "visual.transformer.resblocks."),
    (r"^visual_projection\.weight$", "visual.proj"),
    (r"\.self_attn\.", ".attn."),
    (r"\.layer_norm([12])\.", r".ln_\1."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
)
_QUERY = re.compile(r"(.*\.attn\.)q_proj\.(weight|bias)")


def is_hugging_face(names: Mapping[str, Tensor]) -> bool:
    """True for the tensors of a transformers `CLIPModel`."""
    return any(name.startswith(("text_model.", "vision_model.")) for name in names)


def from_hugging_face(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the tensors of a transformers `CLIPModel` to OpenAI's names.

    Queries, keys and values are stacked into one matrix, and the two projections are transposed: OpenAI computes
    `features @ projection`, Hugging Face uses linear layers.
    """
    renamed = {_rename(name): tensor for name, tensor in tensors.items() if not name.endswith("position_ids")}
    for projection in ("text_projection", "visual.proj"):
        if projection in renamed:
            renamed[projection] = renamed[projection].T.contiguous()
    for match in filter(None, map(_QUERY.fullmatch, list(renamed))):
        block, kind = match.groups()
        parts = [f"{block}{part}_proj.{kind}" for part in "qkv"]
        shapes = {renamed[part].shape if part in renamed else () for part in parts}
        if len(shapes) == 1 and shapes != {()}:  # others are reported with the tensors that do not fit
            renamed[f"{block}in_proj_{kind}"] = torch.cat([renamed.pop(part) for part in parts])
    return renamed


def _rename(name: str) -> str:
    for pattern, replacement in _RENAMES:
        name = re.sub(pattern, replacement, name)
    return name
