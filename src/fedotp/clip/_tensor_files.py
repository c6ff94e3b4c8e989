"""Reading tensors from the files people have: safetensors, and PyTorch's zip archives.

The latter are TorchScript's (OpenAI's `.pt`) or those of `torch.save`. All of it is taken as data: no code in a file is
ever run, nor opened, and a pickle is read as data. What an archive declares is held against the bytes that are there
before anything of that size is made.
"""

import sys
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from fedotp._text import one_line
from fedotp.clip._pickled import Module, NotPlainError, StorageRef, TensorRef, read_pickle
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
    """Read any supported container; its content, not its name, says which."""
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
        tensors = _read_archive(path)
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


# PyTorch's zip archives ---------------------------------------------------------------------------------------

_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_DEEPEST = 32  # modules in modules; OpenAI's are seven deep
_SHARED = 4  # tensors may share their numbers; all together may be so many times as large as the file
_CHUNK = 1 << 20


def _read_archive(path: Path) -> dict[str, Tensor]:
    """The tensors of the state dict, or of the module, that an archive holds.

    Raises:
        FedotpError: if it holds neither of them.
        NotPlainError: if it holds more than tensors.
        Exception: of any kind, if it is damaged.
    """
    with zipfile.ZipFile(path) as opened:
        archive = _Archive(opened, path.stat().st_size)
        stored = read_pickle(bytes(archive.entry("data.pkl")))
        found = _module_tensors(stored) if isinstance(stored, Module) else _state_dict_tensors(stored)
        return archive.tensors(found)


class _Archive:
    """The entries of a zip file under `<its name>/`, as PyTorch lays them out."""

    def __init__(self, opened: zipfile.ZipFile, file_size: int) -> None:
        self._opened = opened
        self._file_size = file_size
        self._entries = {entry.filename: entry for entry in opened.infolist()}
        if len(self._entries) != len(opened.infolist()):
            raise zipfile.BadZipFile("two entries of one name")
        (pickle,) = (name for name in self._entries if name.count("/") == 1 and name.endswith("/data.pkl"))
        self._folder = pickle.removesuffix("data.pkl")
        self._read = 0
        order = self.entry("byteorder") if f"{self._folder}byteorder" in self._entries else b"little"
        if order.decode() != sys.byteorder:
            raise NotPlainError(f"numbers in an order of bytes that is not this machine's, {sys.byteorder}")

    def entry(self, name: str) -> bytearray:
        """The content of one entry, its checksum verified."""
        entry = self._entries[self._folder + name]
        self._read += entry.file_size
        # Entries that overlap or unfold would let a small file fill the memory; PyTorch compresses none of these.
        if entry.compress_type != zipfile.ZIP_STORED or self._read > self._file_size:
            raise NotPlainError(f"the entry {name} in a form that PyTorch does not write")
        content = bytearray(entry.file_size)
        filled = 0
        with self._opened.open(entry) as stream:
            while chunk := stream.read(_CHUNK):  # the checksum is that of the whole, and is checked at its end
                content[filled : filled + len(chunk)] = chunk
                filled += len(chunk)
        if filled != entry.file_size:
            raise zipfile.BadZipFile(f"{name} is cut short")
        return content

    def tensors(self, found: dict[str, TensorRef]) -> dict[str, Tensor]:
        """The tensors themselves; those of one storage share their memory."""
        if sum(_n_bytes(tensor) for tensor in found.values()) > _SHARED * self._file_size:
            raise NotPlainError("tensors many times as large as the file")
        storages: dict[StorageRef, Tensor] = {}
        tensors = {}
        for name, (storage, offset, shape, stride) in found.items():
            if storage not in storages:
                storages[storage] = self._storage(storage)
            tensors[name] = torch.as_strided(storages[storage], shape, stride, offset)
        return tensors

    def _storage(self, storage: StorageRef) -> Tensor:
        values = torch.frombuffer(self.entry(f"data/{storage.key}"), dtype=_DTYPES[storage.kind])
        if len(values) != storage.n_items:
            raise ValueError(f"storage {storage.key} is not of the declared length")
        return values


def _n_bytes(tensor: TensorRef) -> int:
    """The size of a tensor, after a check that it lies inside its storage and repeats none of its numbers."""
    storage, offset, shape, stride = tensor
    if storage.kind not in _DTYPES:
        raise NotPlainError(f"numbers of the kind {storage.kind}")
    n_items = prod(shape)
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if n_items > storage.n_items or (n_items and last >= storage.n_items):
        raise ValueError("a tensor reaches outside its storage")
    return n_items * _DTYPES[storage.kind].itemsize


def _module_tensors(root: Module) -> dict[str, TensorRef]:
    """The tensors of a tree of modules, under the dotted names of a state dict."""
    found: dict[str, TensorRef] = {}
    seen: set[int] = set()
    waiting = [("", 0, root)]
    while waiting:
        prefix, depth, module = waiting.pop()
        if id(module) in seen or depth > _DEEPEST:
            raise NotPlainError("modules that are no tree")
        seen.add(id(module))
        for name, value in module.attributes.items():
            if isinstance(value, TensorRef):
                found[prefix + name] = value
            elif isinstance(value, Module):
                waiting.append((f"{prefix}{name}.", depth + 1, value))
    return found


def _state_dict_tensors(stored: object) -> dict[str, TensorRef]:
    """The tensors of a state dict, also of one that a training script wrapped in a larger dictionary."""
    if isinstance(stored, dict) and isinstance(stored.get("state_dict"), dict):
        stored = stored["state_dict"]
    if not isinstance(stored, dict):
        raise FedotpError(f"the archive holds a {type(stored).__name__} and not a state dict")
    return {str(name): value for name, value in stored.items() if isinstance(value, TensorRef)}
