"""Reading tensors from the files people have. All of it is taken as data: no code in a file is ever run."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from torch import Tensor

from fedotp._text import one_line
from fedotp.clip._archive import read_archive
from fedotp.clip._pickled import NotPlainError
from fedotp.errors import FedotpError

_MOST_TENSORS = 10_000  # the largest published have some 1,500
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
    if not path.is_file():
        raise FedotpError(f"not a file of weights, nor a folder with one; {WANTED}")
    try:
        with path.open("rb") as file:
            start = file.read(32)
    except OSError as error:
        raise FedotpError(f"cannot be read: {error.strerror}") from error
    is_safetensors = start[8:9] == b"{"  # the length of the header in eight bytes, then JSON
    if start.startswith(b"PK\x03\x04"):
        return TensorFile(_without_prefix(_read_torch(path)), {})
    if start.startswith(b"version https://git-lfs"):
        raise FedotpError("this is a Git LFS pointer and not the weights; run `git lfs pull` where it lies")
    if start.startswith(b"\x80") and not is_safetensors:
        raise FedotpError(f"a bare pickle is not read, because unpickling can run code; {WANTED}")
    if not is_safetensors:
        raise FedotpError(f"not a file of weights; {WANTED}")
    return _read_safetensors(path)


def _read_safetensors(path: Path) -> TensorFile:
    try:
        with safe_open(path, framework="pt") as stored:
            names = _few(stored.keys())
            return TensorFile({name: stored.get_tensor(name) for name in names}, stored.metadata() or {})
    except FedotpError:
        raise
    except Exception as error:  # the library's own, and torch's about what the header declares
        raise FedotpError(f"the safetensors file is damaged or cut short ({one_line(error)}); {WANTED}") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    """The tensors of a PyTorch zip archive, be it TorchScript or a plain `torch.save`; nothing in it is run."""
    try:
        tensors = read_archive(path)
    except FedotpError as error:
        raise FedotpError(f"{error}; {WANTED}") from error
    except NotPlainError as error:
        raise FedotpError(
            f"the archive holds {one_line(error)}, which no file of weights does, and is not read; {WANTED}"
        ) from error
    except Exception as error:  # damage makes a reader stumble in every possible way
        raise FedotpError(f"the PyTorch archive is damaged or cut short; {WANTED}") from error
    _few(list(tensors))
    return tensors


def _few(names: list[str]) -> list[str]:
    if len(names) > _MOST_TENSORS:
        raise FedotpError(f"it holds {len(names):,} tensors, and no CLIP has more than {_MOST_TENSORS:,}; {WANTED}")
    return names


def _without_prefix(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without the "module." that torch's DistributedDataParallel adds to every name."""
    if all(name.startswith("module.") for name in tensors):
        return {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors
