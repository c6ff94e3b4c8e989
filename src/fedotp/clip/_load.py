"""Loading of checkpoints into a frozen CLIP, and saving as safetensors."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedotp._text import one_line
from fedotp.clip._config import CONFIGS, MINI, Activation, ClassTable, ClipConfig, mini_file
from fedotp.clip._hub import fetch
from fedotp.clip._infer import (
    check_depth,
    from_hugging_face,
    hugging_face_hints,
    infer_config,
    is_hugging_face,
    open_clip_hints,
)
from fedotp.clip._model import CLIP, digests_of
from fedotp.clip._tensor_files import find_file, read_file
from fedotp.clip._tokenizer import Tokenizer
from fedotp.errors import FedotpError, listed, nearest

# Keys in the safetensors header of our own files.
_CONFIG_KEY, _TOKENIZER_KEY = "fedotp.config", "fedotp.tokenizer"
# Constants that OpenAI, open_clip and TorchScript store with the weights.
_CONSTANTS = {"input_resolution", "context_length", "vocab_size", "attn_mask"}
# Functions that draw the initial weights of a module.
_DRAWING = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.mul)


def load(
    source: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    activation: Activation | None = None,
    tokenizer: Tokenizer | None = None,
) -> CLIP:
    """Load a frozen CLIP by name or from a file.

    `mini` is the small bundled backbone. A name of `CONFIGS` is downloaded unless it is in the local Hugging Face
    cache; a file never needs the network. It can be OpenAI's `.pt`, a `CLIPModel` of Hugging Face, an open_clip
    checkpoint, or one of ours, or the folder of one of the latter three. The architecture is inferred from the tensor
    shapes.

    `activation` overrides the configuration in the folder of the weights, whose default is QuickGELU. `tokenizer` is
    needed only for text towers with their own vocabulary in a file that is not ours.
    """
    published = CONFIGS.get(source) if isinstance(source, str) else None
    path = mini_file() if source == MINI else fetch(str(source)) if published else Path(source)
    if not os.path.exists(path):  # False for a name that is too long for a path
        names = [*CONFIGS, MINI]
        hint = f"did you mean {near!r}?" if (near := nearest(str(source), names)) else f"names are {', '.join(names)}"
        raise FedotpError(f"{source}: neither a file nor the name of a backbone; {hint}")
    with _naming(path):
        config, tokenizer, tensors = _read(path, tokenizer)
        config = config if activation is None else replace(config, activation=activation)
        if config != (published or config):
            raise FedotpError(f"expected the weights of {source}, got those of a {config}")
        return _build(config, tokenizer, tensors, device, dtype)


def with_class_features(
    image_tower: str | Path, names: Sequence[str], features: Tensor, *, template: str, source: str, scale: float = 100.0
) -> CLIP:
    """Create a frozen CLIP with the text features (n, e) of n class names instead of a text tower.

    They must come from the text tower that belongs to `image_tower`, a file with the tensors `visual.*` of a CLIP with
    OpenAI's or Hugging Face's names. `template` is the caption of the features, such as "a photo of a {}", `source`
    their origin, and `scale` the CLIP's 1 / tau. `save` writes everything to one file.
    """
    with _naming(image_tower):
        table = ClassTable(names if isinstance(names, str) else tuple(names), template, source)  # type: ignore[arg-type]
        if not (0 < scale < math.inf and features.isfinite().all()):
            raise FedotpError("scale must be a positive number, and all class features must be finite")
        config, _, tensors = _read(Path(image_tower), None, table)
        of_text = {"class_features": features, "logit_scale": torch.tensor(scale).log()}
        visual = {name: tensor for name, tensor in tensors.items() if name.startswith("visual.")}
        return _build(config, None, visual | of_text, "cpu", torch.float32)


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Begin errors with the path."""
    try:
        yield
    except FedotpError as error:
        raise FedotpError(f"{path}: {error}") from error


def _read(
    path: Path, tokenizer: Tokenizer | None, table: ClassTable | None = None
) -> tuple[ClipConfig, Tokenizer | None, Mapping[str, Tensor]]:
    """Read a file's configuration, tokenizer, and tensors by OpenAI's names; a `table` replaces the text tower."""
    path = find_file(path)
    tensors, metadata = read_file(path)
    if _CONFIG_KEY in metadata:
        config = ClipConfig.from_json(metadata[_CONFIG_KEY])
        config = config if table is None else replace(config, text=table)
        check_depth(config, tensors)
        if tokenizer is None and table is None and _TOKENIZER_KEY in metadata:
            tokenizer = Tokenizer.from_json(metadata[_TOKENIZER_KEY], origin="its tokenizer")
        return config, tokenizer, tensors
    hints = (hugging_face_hints if is_hugging_face(tensors) else open_clip_hints)(path.parent)
    tensors = from_hugging_face(tensors) if is_hugging_face(tensors) else tensors
    return infer_config(tensors, hints, tokenizer, table), tokenizer, tensors


def _build(
    config: ClipConfig,
    tokenizer: Tokenizer | None,
    tensors: Mapping[str, Tensor],
    device: str | torch.device,
    dtype: torch.dtype,
) -> CLIP:
    """Build the model with exactly these weights; the error lists the first tensors that do not fit."""
    with torch.device("meta"), _Undrawn():  # shapes only: the weights follow
        model = CLIP(config, tokenizer=tokenizer)
    state = model.state_dict()
    weights = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    _refuse("lacks", [name for name in weights if name not in tensors])
    _refuse("has unknown", [n for n in tensors if n not in state and n.split(".")[-1] not in _CONSTANTS])
    _refuse("has ill-shaped", [name for name in weights if tensors[name].shape != weights[name].shape])
    _refuse("has non-float", [name for name in weights if not tensors[name].is_floating_point()])

    stored = {name: tensors[name] for name in weights}
    model.file_digests = digests_of(stored)
    placed = {name: _placed(tensor, device, dtype) for name, tensor in stored.items()}
    counters = {
        name: torch.tensor(0, device=device) for name in state.keys() - weights.keys()
    }  # of batch norm; not used
    model.load_state_dict(placed | counters, assign=True)
    return model.freeze()


class _Undrawn(TorchFunctionMode):
    """Context in which modules do not draw initial weights, because loaded weights replace them.

    On the meta device this also avoids the import of torch's compiler, which takes a second or more.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Skip functions that draw or scale initial weights."""
        kwargs = kwargs or {}
        if func in _DRAWING:
            return args[0] if args else kwargs["tensor"]
        return (torch.empty if func is torch.randn else func)(*args, **kwargs)


def _placed(tensor: Tensor, device: str | torch.device, dtype: torch.dtype) -> Tensor:
    """Copy a tensor, because a mapped file may be truncated later."""
    there = tensor.to(device)  # before the conversion, to transfer fewer bytes
    return torch.empty(there.shape, dtype=dtype, device=device).copy_(there)


def _refuse(what: str, names: list[str]) -> None:
    if names:
        raise FedotpError(f"not a supported CLIP: it {what} tensors {listed([one_line(n, 80) for n in names], 3)}")


def save(model: CLIP, path: str | Path, *, dtype: torch.dtype | None = None, overwrite: bool = False) -> None:
    """Write a safetensors file for `load`, with OpenAI's names, config and tokenizer, atomically.

    `dtype` is the type of the stored weights, by default their own.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise FedotpError(f"{path}: already exists; set overwrite (--force) to replace it")
    metadata = {"format": "pt", _CONFIG_KEY: model.config.to_json()}
    if model.custom_tokenizer is not None:
        metadata[_TOKENIZER_KEY] = model.custom_tokenizer.to_json()
    tensors = {
        name: tensor.to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
        for name, tensor in model.state_dict().items()
    }
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        safetensors.torch.save_file(tensors, unfinished, metadata)
        os.replace(unfinished, path)
    except (OSError, SafetensorError) as error:
        raise FedotpError(f"cannot write {path}: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
