"""Safe reading of untrusted pickles.

A pickle can call any function with any arguments. Here it can only call the functions that a reader allows, and uses
only the opcodes that containers, strings and numbers need.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any, ClassVar


class NotPlainError(Exception):
    """The pickle contains more than its reader allows; the message completes "it contains ..."."""


class Opcodes(dict[int, Callable[[Any], None]]):
    """Functions by opcode; a missing one is an error."""

    def __missing__(self, code: int) -> Callable[[Any], None]:
        raise NotPlainError(f"the opcode 0x{code:02x}")


# Sets hash their items, and hashing deeply nested tuples overflows the stack. Buffers allocate the size that they
# declare. The others create objects.
_REFUSED = (
    *(pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET),
    *(pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER),
    *(pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4),
    *(pickle.PERSID, pickle.BINPERSID),
)


class PlainUnpickler(pickle._Unpickler):
    """Python's unpickler with restrictions; the one in C allocates a memo of any size that a pickle requests."""

    allowed: ClassVar[Mapping[tuple[str, str], object]] = {}
    """Replacements of functions, by module and name."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = Opcodes(
        (opcode, load) for opcode, load in pickle._Unpickler.dispatch.items() if bytes([opcode]) not in _REFUSED
    )

    def __init__(self, content: bytes) -> None:
        """Read `content`; strings of Python 2 are decoded as latin-1 text."""
        super().__init__(io.BytesIO(content), encoding="latin1")

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.allowed[module, name]
        except KeyError:
            raise NotPlainError(f"a call of {module}.{name}") from None

    def set_state(self, target: object, state: Any) -> None:
        """Set the state of an object that the pickle created; by default none has one."""
        raise NotPlainError("an object with a state")

    def _put(self, target: object, items: list[Any]) -> None:
        """Fill a dictionary; hashing deeply nested tuples as keys would overflow the stack."""
        if not isinstance(target, dict) or not all(isinstance(key, str | bytes | int) for key in items[::2]):
            raise NotPlainError("a dictionary key that is neither text nor a number")
        target.update(zip(items[::2], items[1::2], strict=True))

    def load_build(self: Any) -> None:
        """Set a state."""
        state = self.stack.pop()
        self.set_state(self.stack[-1], state)

    def load_dict(self: Any) -> None:
        """Create a dictionary of all items on the stack since the mark."""
        items = self.pop_mark()
        self.append({})
        self._put(self.stack[-1], items)

    def load_setitem(self: Any) -> None:
        """Add one entry."""
        value, key = self.stack.pop(), self.stack.pop()
        self._put(self.stack[-1], [key, value])

    def load_setitems(self: Any) -> None:
        """Add all entries since the mark."""
        items = self.pop_mark()
        self._put(self.stack[-1], items)

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
