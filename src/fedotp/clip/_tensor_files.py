"""Safe reading of tensors from safetensors and PyTorch's zip archives.

The latter are TorchScript's (OpenAI's `.pt`) or those of `torch.save`. Python's unpickler calls functions named in the
pickle, and PyTorch's TorchScript interpreter runs code of the archive; here only the few names that trees of tensors
need are supported, and nothing else is called, imported or executed. Declared sizes are checked against the size of the
file before memory is allocated.
"""

import pickle
import sys
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from fedotp._text import one_line
from fedotp._unpickle import NotPlainError, Opcodes, PlainUnpickler
from fedotp.errors import FedotpError

_MOST_TENSORS = 10_000  # the largest published models have about 1,500
_IN_A_FOLDER = ("model.safetensors", "open_clip_model.safetensors")
WANTED = (
    "expected OpenAI's .pt archive, a CLIPModel's model.safetensors from Hugging Face, "
    "an open_clip safetensors file, or the output of `fedotp weights convert`"
)


def find_file(path: Path) -> Path:
    """Return the file itself, or the weights file in a folder with the layout of the Hugging Face hub."""
    if not path.is_dir():
        return path
    for name in _IN_A_FOLDER:
        if (path / name).is_file():
            return path / name
    raise FedotpError(f"the folder contains neither {' nor '.join(_IN_A_FOLDER)}; give the path of the weights file")


def read_file(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    """Read any supported format: tensors by their names in the file, and the metadata of a safetensors header."""
    if not path.is_file():
        raise FedotpError(f"neither a weights file nor a folder with one; {WANTED}")
    try:
        with path.open("rb") as file:
            start = file.read(32)
    except OSError as error:
        raise FedotpError(f"cannot read it: {error.strerror}") from error
    is_safetensors = start[8:9] == b"{"  # eight bytes of the header's length, then JSON
    if start.startswith(b"PK\x03\x04"):
        tensors = _read_torch(path)
        if all(name.startswith("module.") for name in tensors):  # by torch's DistributedDataParallel
            tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
        return tensors, {}
    if start.startswith(b"version https://git-lfs"):
        raise FedotpError("a Git LFS pointer, not the weights; run `git lfs pull` in its folder")
    if start.startswith(b"\x80") and not is_safetensors:
        raise FedotpError(f"bare pickles are not supported, because unpickling can run code; {WANTED}")
    if not is_safetensors:
        raise FedotpError(f"not a weights file; {WANTED}")
    return _read_safetensors(path)


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    try:
        with safe_open(path, framework="pt") as stored:
            names = _few(stored.keys())
            return {name: stored.get_tensor(name) for name in names}, stored.metadata() or {}
    except FedotpError:
        raise
    except Exception as error:  # errors of the library, and of torch for an invalid header
        raise FedotpError(f"the safetensors file is corrupt or truncated ({one_line(error)}); {WANTED}") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a PyTorch zip archive, TorchScript or `torch.save`, without running code."""
    try:
        tensors = _read_archive(path)
    except FedotpError as error:
        raise FedotpError(f"{error}; {WANTED}") from error
    except NotPlainError as error:
        raise FedotpError(f"the archive contains {one_line(error)}, which is not supported; {WANTED}") from error
    except Exception as error:  # corrupt files raise many kinds of errors
        raise FedotpError(f"the PyTorch archive is corrupt or truncated; {WANTED}") from error
    _few(list(tensors))
    return tensors


def _few(names: list[str]) -> list[str]:
    if len(names) > _MOST_TENSORS:
        raise FedotpError(f"it contains {len(names):,} tensors: must be at most {_MOST_TENSORS:,}; {WANTED}")
    return names


# Pickles in PyTorch's archives ------------------------------------------------------------------------------

_LARGEST_PICKLE = 4 << 20  # bytes; OpenAI's pickles have less than 0.25 MB
_MOST_AXES = 8


class StorageRef(NamedTuple):
    """Reference to an array of numbers outside the pickle, under `key`."""

    kind: str
    key: str
    n_items: int


class TensorRef(NamedTuple):
    """Reference to a tensor: a view of a storage."""

    storage: StorageRef
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Module:
    """The attributes of a TorchScript module, without its code."""

    def __init__(self) -> None:
        self.attributes: dict[str, object] = {}


def _tensor(storage: object, offset: object, shape: object, stride: object, *_: object) -> TensorRef:
    if not isinstance(storage, StorageRef):
        raise ValueError("not a storage")
    (start,) = _sizes((offset,))
    return TensorRef(storage, start, _sizes(shape), _sizes(stride))


def _first(value: object, *_: object) -> object:
    return value


def _sizes(value: object) -> tuple[int, ...]:
    sizes = value if isinstance(value, tuple) and len(value) <= _MOST_AXES else (None,)
    if all(type(size) is int and 0 <= size < 1 << 48 for size in sizes):
        return sizes
    raise ValueError("invalid sizes of a tensor")


# TorchScript's wrappers of typed lists and dictionaries, whose first argument is the value.
_TYPE_TAGS = ("restore_type_tag", "build_intlist", "build_doublelist", "build_boollist", "build_tensorlist")


class _Reader(PlainUnpickler):
    """Reader of `Module`, `TensorRef` and Python's plain containers."""

    allowed = {  # noqa: RUF012
        ("collections", "OrderedDict"): dict,  # only opcodes fill one, after checking its keys
        ("torch._utils", "_rebuild_tensor_v2"): _tensor,
        ("torch._utils", "_rebuild_parameter"): _first,
        ("torch", "Size"): _sizes,
        **{("torch.jit._pickle", tag): _first for tag in _TYPE_TAGS},
    }
    dispatch = Opcodes(PlainUnpickler.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "__torch__":
            return Module
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            return name
        return super().find_class(module, name)

    def persistent_load(self, pid: object) -> StorageRef:
        match pid:
            case ("storage", str(kind), str(key), str(_), int(n_items)):
                return StorageRef(kind, key, n_items)
        raise ValueError("not a storage")

    def set_state(self, target: object, state: Any) -> None:
        match target, state:
            case Module(), dict():
                if target.attributes or not all(isinstance(name, str) for name in state):
                    raise ValueError("invalid state of a module")
                target.attributes = state
            case Module(), _:
                raise NotPlainError("a module with its own code for loading")
            case dict(), dict():  # torch's versions of modules in a state dict
                pass
            case _:
                raise NotPlainError("an object with a state")

    def load_newobj(self: Any) -> None:
        """Create a module; there are no other objects."""
        arguments, kind = self.stack.pop(), self.stack.pop()
        if kind is not Module or arguments != ():
            raise NotPlainError("an object that is not a module")
        self.append(Module())

    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.BINPERSID[0]] = pickle._Unpickler.dispatch[pickle.BINPERSID[0]]


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
_DEEPEST = 32  # nesting of modules; seven in OpenAI's files
_SHARED = 4  # maximum ratio of the size of all tensors, which may share storages, to that of the file
_CHUNK = 1 << 20


def _read_archive(path: Path) -> dict[str, Tensor]:
    """Read the tensors of the state dict or module in an archive.

    Raises:
        FedotpError: if it contains neither of them.
        NotPlainError: if it contains more than tensors.
        Exception: of any kind, if it is corrupt.
    """
    with zipfile.ZipFile(path) as opened:
        archive = _Archive(opened, path.stat().st_size)
        content = archive.entry("data.pkl")
        if len(content) > _LARGEST_PICKLE:
            raise NotPlainError(f"a pickle of {len(content):,} bytes, more than {_LARGEST_PICKLE:,}")
        stored = _Reader(bytes(content)).load()
        found = _module_tensors(stored) if isinstance(stored, Module) else _state_dict_tensors(stored)
        return archive.tensors(found)


class _Archive:
    """The entries of a zip file in `<its name>/`, PyTorch's layout."""

    def __init__(self, opened: zipfile.ZipFile, file_size: int) -> None:
        self._opened = opened
        self._file_size = file_size
        self._entries = {entry.filename: entry for entry in opened.infolist()}
        if len(self._entries) != len(opened.infolist()):
            raise zipfile.BadZipFile("two entries with the same name")
        (pickle,) = (name for name in self._entries if name.count("/") == 1 and name.endswith("/data.pkl"))
        self._folder = pickle.removesuffix("data.pkl")
        self._read = 0
        order = self.entry("byteorder") if f"{self._folder}byteorder" in self._entries else b"little"
        if order.decode() != sys.byteorder:
            raise NotPlainError(f"numbers in a byte order other than this machine's, {sys.byteorder}")

    def entry(self, name: str) -> bytearray:
        """Read one entry and verify its checksum."""
        entry = self._entries[self._folder + name]
        self._read += entry.file_size
        # With overlapping or compressed entries, which PyTorch does not write, a small file could exhaust the memory.
        if entry.compress_type != zipfile.ZIP_STORED or self._read > self._file_size:
            raise NotPlainError(f"the entry {name} compressed or overlapping with others")
        content = bytearray(entry.file_size)
        filled = 0
        with self._opened.open(entry) as stream:
            while chunk := stream.read(_CHUNK):  # the checksum is verified at the end
                content[filled : filled + len(chunk)] = chunk
                filled += len(chunk)
        if filled != entry.file_size:
            raise zipfile.BadZipFile(f"{name} is truncated")
        return content

    def tensors(self, found: dict[str, TensorRef]) -> dict[str, Tensor]:
        """Return the tensors; those of one storage share memory."""
        if sum(_n_bytes(tensor) for tensor in found.values()) > _SHARED * self._file_size:
            raise NotPlainError(f"tensors more than {_SHARED} times as large as the file")
        storages: dict[StorageRef, Tensor] = {}
        tensors = {}
        for name, (storage, offset, shape, stride) in found.items():
            if storage not in storages:
                values = torch.frombuffer(self.entry(f"data/{storage.key}"), dtype=_DTYPES[storage.kind])
                if len(values) != storage.n_items:
                    raise ValueError(f"storage {storage.key} does not have the declared length")
                storages[storage] = values
            tensors[name] = torch.as_strided(storages[storage], shape, stride, offset)
        return tensors


def _n_bytes(tensor: TensorRef) -> int:
    """Return the size of a tensor, after checking that it is inside its storage and does not repeat numbers."""
    storage, offset, shape, stride = tensor
    if storage.kind not in _DTYPES:
        raise NotPlainError(f"numbers of the type {storage.kind}")
    n_items = prod(shape)
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if n_items > storage.n_items or (n_items and last >= storage.n_items):
        raise ValueError("a tensor exceeds its storage")
    return n_items * _DTYPES[storage.kind].itemsize


def _module_tensors(root: Module) -> dict[str, TensorRef]:
    """Return the tensors of a tree of modules with the dotted names of a state dict."""
    found: dict[str, TensorRef] = {}
    seen: set[int] = set()
    waiting = [("", 0, root)]
    while waiting:
        prefix, depth, module = waiting.pop()
        if id(module) in seen or depth > _DEEPEST:
            raise NotPlainError("modules that do not form a tree")
        seen.add(id(module))
        for name, value in module.attributes.items():
            if isinstance(value, TensorRef):
                found[prefix + name] = value
            elif isinstance(value, Module):
                waiting.append((f"{prefix}{name}.", depth + 1, value))
    return found


def _state_dict_tensors(stored: object) -> dict[str, TensorRef]:
    """Return the tensors of a state dict, which may be nested in a training script's dictionary."""
    if isinstance(stored, dict) and isinstance(stored.get("state_dict"), dict):
        stored = stored["state_dict"]
    if not isinstance(stored, dict):
        raise FedotpError(f"the archive contains a {type(stored).__name__} instead of a state dict")
    return {str(name): value for name, value in stored.items() if isinstance(value, TensorRef)}
