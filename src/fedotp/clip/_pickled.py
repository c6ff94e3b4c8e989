"""Safe reading of the pickle in a PyTorch archive.

Python's unpickler calls functions named in the pickle, and PyTorch's TorchScript interpreter runs code of the archive.
This reader supports only the few names that trees of tensors need, and calls, imports and executes nothing else.
"""

import pickle
from typing import Any, NamedTuple

from fedotp._unpickle import NotPlainError, Opcodes, PlainUnpickler

_LARGEST = 4 << 20  # bytes; OpenAI's pickles have less than 0.25 MB
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


def _ordered() -> dict[object, object]:
    """Return an empty dictionary: only opcodes fill one, after checking its keys."""
    return {}


def _first(value: object, *_: object) -> object:
    return value


def _sizes(value: object) -> tuple[int, ...]:
    if isinstance(value, tuple) and len(value) <= _MOST_AXES and all(_is_size(size) for size in value):
        return value
    raise ValueError("invalid sizes of a tensor")


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 48


# TorchScript's wrappers of typed lists and dictionaries, whose first argument is the value.
_TYPE_TAGS = ("restore_type_tag", "build_intlist", "build_doublelist", "build_boollist", "build_tensorlist")


class _Reader(PlainUnpickler):
    """Reader of `Module`, `TensorRef` and Python's plain containers."""

    allowed = {  # noqa: RUF012
        ("collections", "OrderedDict"): _ordered,
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


def read_pickle(content: bytes) -> object:
    """Read a pickle of PyTorch into `Module`, `TensorRef` and Python's plain containers."""
    if len(content) > _LARGEST:
        raise NotPlainError(f"a pickle of {len(content):,} bytes, more than {_LARGEST:,}")
    return _Reader(content).load()
