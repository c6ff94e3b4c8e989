"""Reading tensors from the files people have, without ever running code from them."""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedotp.errors import FedotpError

_IN_A_FOLDER = ("model.safetensors", "open_clip_model.safetensors")
WANTED = (
    "expected OpenAI's .pt archive, a CLIPModel's model.safetensors from Hugging Face, "
    "an open_clip safetensors file, or the output of `fedotp weights convert`"
)


class TensorFile(NamedTuple):
    """Tensors under the names they have in the file, and the notes of a safetensors header."""

    tensors: dict[str, Tensor]
    metadata: Mapping[str, str]


def find_file(path: Path) -> Path:
    """The file itself, or the weights in a folder laid out as on the Hugging Face hub."""
    if not path.is_dir():
        return path
    for name in _IN_A_FOLDER:
        if (path / name).is_file():
            return path / name
    raise FedotpError(f"the folder holds neither {' nor '.join(_IN_A_FOLDER)}; name the weights file itself")


def read_file(path: Path) -> TensorFile:
    """Read any supported container; which one it is, is told by its content and not by its name."""
    try:
        with path.open("rb") as file:
            start = file.read(32)
    except OSError as error:
        raise FedotpError(f"cannot be read: {error.strerror}") from error
    is_safetensors = start[8:9] == b"{"  # the length of the header in eight bytes, then JSON
    if start.startswith(b"PK\x03\x04"):
        return TensorFile(_without_wrapping(_read_torch(path)), {})
    if start.startswith(b"version https://git-lfs"):
        raise FedotpError("this is a Git LFS pointer and not the weights; run `git lfs pull` where it lies")
    if start.startswith(b"\x80") and not is_safetensors:
        raise FedotpError(f"a bare pickle is not read, because unpickling can run code; {WANTED}")
    if not is_safetensors:
        raise FedotpError(f"not a file of weights; {WANTED}")
    try:
        with safe_open(path, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (not a dict)
            return TensorFile(tensors, stored.metadata() or {})
    except SafetensorError as error:
        raise FedotpError(f"the safetensors file is damaged or cut short ({error}); {WANTED}") from error


def _read_torch(path: Path) -> object:
    """What a PyTorch zip archive holds, be it TorchScript or a plain `torch.save`."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.namelist()
            damaged = archive.testzip()  # the readers of torch skip the checksums
        if damaged is not None:
            raise zipfile.BadZipFile(f"wrong checksum of {damaged}")
        if any(name.endswith("/constants.pkl") or "/code/" in name for name in entries):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                # TorchScript is the only reader for OpenAI's archives. It has an interpreter of its own that
                # reaches tensors but neither Python nor the file system, and we call no method of the model.
                return torch.jit.load(path, map_location="cpu").state_dict()
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise FedotpError(f"the archive holds more than tensors, and is not unpickled; {WANTED}") from error
    except Exception as error:  # damage makes the readers stumble in every possible way
        raise FedotpError(f"the PyTorch archive is damaged or cut short; {WANTED}") from error


def _without_wrapping(stored: object) -> dict[str, Tensor]:
    """The tensors of a state dict, also of one that a training script wrapped in a larger dictionary."""
    if isinstance(stored, Mapping) and isinstance(stored.get("state_dict"), Mapping):
        stored = stored["state_dict"]
    if not isinstance(stored, Mapping):
        raise FedotpError(f"the archive holds a {type(stored).__name__} and not a state dict; {WANTED}")
    tensors = {str(name): value for name, value in stored.items() if isinstance(value, Tensor)}
    if all(name.startswith("module.") for name in tensors):  # torch's DistributedDataParallel adds it
        tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors
