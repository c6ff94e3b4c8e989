"""Safe reading of the pickle in a PyTorch archive.

Python's unpickler calls functions named in the pickle, and PyTorch's TorchScript interpreter runs code of the archive.
This reader supports only the few names that trees of tensors need, and calls, imports and executes nothing.
"""

import pickletools
from dataclasses import dataclass, field
from typing import NamedTuple

_LARGEST = 4 << 20  # bytes; OpenAI's pickles have less than 0.25 MB
_MOST_AXES = 8


class NotPlainError(Exception):
    """The pickle contains more than tensors in dictionaries and modules; the message completes "it contains ..."."""


class Name(NamedTuple):
    """A global name in a pickle, for example of a class; never resolved."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


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


@dataclass(eq=False)
class Module:
    """The attributes of a TorchScript module, without its code."""

    attributes: dict[str, object] = field(default_factory=dict)


_MARK = object()
# TorchScript's wrappers of typed lists and dictionaries, whose first argument is the value.
_TYPE_TAGS = {"restore_type_tag", "build_intlist", "build_doublelist", "build_boollist", "build_tensorlist"}


def read_pickle(content: bytes) -> object:
    """Read a pickle of PyTorch into `Module`, `TensorRef` and Python's plain containers."""
    if len(content) > _LARGEST:
        raise NotPlainError(f"a pickle of {len(content):,} bytes, more than {_LARGEST:,}")
    reader = _Reader()
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "STOP":
            return reader.pop()
        reader.step(opcode.name, argument)
    raise ValueError("the pickle is truncated")


class _Reader:
    """Interpreter of the pickle opcodes that PyTorch uses."""

    def __init__(self) -> None:
        self._stack: list[object] = []
        self._memo: dict[object, object] = {}

    def pop(self) -> object:
        return self._stack.pop()

    def step(self, name: str, argument: object) -> None:
        stack = self._stack
        match name:
            case "PROTO":
                pass
            case "MARK":
                stack.append(_MARK)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE" | "SHORT_BINSTRING":
                stack.append(argument)
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memo[argument])
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                stack.append({"EMPTY_TUPLE": (), "EMPTY_LIST": [], "EMPTY_DICT": {}}[name])
            case "TUPLE":
                stack.append(tuple(self._since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                n = int(name[-1])
                stack[-n:] = [tuple(stack[-n:])]
            case "APPEND" | "APPENDS":
                items = [stack.pop()] if name == "APPEND" else self._since_mark()
                _list(stack[-1]).extend(items)
            case "SETITEM" | "SETITEMS":
                items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._since_mark()
                _set_items(stack[-1], items)
            case "GLOBAL":
                module, _, attribute = str(argument).partition(" ")
                stack.append(Name(module, attribute))
            case "BINPERSID":
                stack.append(_storage(stack.pop()))
            case "NEWOBJ":
                arguments, kind = stack.pop(), stack.pop()
                stack.append(_new(kind, arguments))
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                stack.append(_reduce(function, arguments))
            case "BUILD":
                state = stack.pop()
                _build(stack[-1], state)
            case _:
                raise NotPlainError(f"the opcode {name}")

    def _since_mark(self) -> list[object]:
        items: list[object] = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _set_items(target: object, items: list[object]) -> None:
    if not isinstance(target, dict):
        raise ValueError("not a dictionary")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str | int):  # hashing deeply nested tuples would overflow the stack
            raise NotPlainError("a dictionary key that is neither text nor a number")
        target[key] = value


def _storage(pid: object) -> StorageRef:
    match pid:
        case ("storage", Name("torch" | "torch.storage", kind), str(key), str(_), int(n_items)):
            return StorageRef(kind, key, n_items)
    raise ValueError("not a storage")


def _new(kind: object, arguments: object) -> Module:
    if isinstance(kind, Name) and kind.module.split(".")[0] == "__torch__" and arguments == ():
        return Module()
    raise NotPlainError(f"an object of {_called(kind)}")


def _reduce(function: object, arguments: object) -> object:
    match function, arguments:
        case Name("collections", "OrderedDict"), ():
            return {}
        case Name("torch._utils", "_rebuild_tensor_v2"), (StorageRef() as storage, offset, shape, stride, *_):
            (start,) = _sizes((offset,))
            return TensorRef(storage, start, _sizes(shape), _sizes(stride))
        case Name("torch._utils", "_rebuild_parameter"), (TensorRef() as tensor, *_):
            return tensor
        case Name("torch", "Size"), (sizes,):
            return _sizes(sizes)
        case Name("torch.jit._pickle", tag), (value, *_) if tag in _TYPE_TAGS:
            return value
    raise NotPlainError(f"a call of {_called(function)}")


def _called(function: object) -> str:
    return str(function) if isinstance(function, Name) else "an unnamed object"  # its text may be huge


def _sizes(value: object) -> tuple[int, ...]:
    if isinstance(value, tuple) and len(value) <= _MOST_AXES and all(_is_size(size) for size in value):
        return value
    raise ValueError("invalid sizes of a tensor")


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 48


def _build(target: object, state: object) -> None:
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
