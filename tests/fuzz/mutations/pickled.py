"""Mutations of pickles: programs that call what they should not, or that never end."""

import pickle
import pickletools
import random
import struct

from fuzz.mutations import raw

MARK = "intruder-was-here"


def call(module: str, name: str, *args: object) -> bytes:
    """The opcodes that call `module.name(*args)` and leave the result on the stack."""
    packed = pickle.dumps(args, protocol=2)[2:-1]  # without PROTO and STOP
    return b"c" + f"{module}\n{name}\n".encode() + packed + b"R"


def _laughs() -> bytes:
    """A list of lists of lists ... of the same list: two to the power of 40 elements, seen from outside."""
    return b"]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(40))


_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"  # as NumPy 1 wrote it
_DTYPE = b"cnumpy\ndtype\n" + pickle.dumps(("f8", False, True), 2)[2:-1] + b"R"


def _array(shape: tuple[int, ...], dtype: bytes, content: object) -> bytes:
    """An array whose state says what it likes."""
    state = b"(K\x01" + pickle.dumps(shape, 2)[2:-1] + dtype + b"\x89" + pickle.dumps(content, 3)[2:-1] + b"t"
    return _ARRAY + state + b"b"


PAYLOADS = (
    call("os", "system", f"touch {MARK}"),
    call("subprocess", "getoutput", f"touch {MARK}"),
    call("builtins", "eval", f"open('{MARK}', 'w')"),
    call("builtins", "open", MARK, "w"),
    call("builtins", "__import__", "antigravity"),
    call("runpy", "run_path", MARK),
    call("torch", "load", MARK),
    call("torch.serialization", "load", MARK),
    call("torch._utils", "_rebuild_tensor_v2", 1, 2, 3, 4),
    call("torch.storage", "_load_from_bytes", b"\x80\x02."),
    call("torch", "from_file", MARK, True, 8),
    call("numpy", "load", MARK, None, True),
    call("numpy", "fromfile", "/etc/hostname"),
    call("numpy.testing._private.utils", "runstring", f"open('{MARK}', 'w')", {}),
    call("numpy.f2py.diagnose", "run_command", f"touch {MARK}"),
    call("_codecs", "encode", "x" * 100, "zlib"),
    call("copyreg", "_reconstructor", 1, 2, 3),
    call("collections", "OrderedDict", [[1, 2]]),
    call("numpy", "ndarray", (2**31,)),
    call("numpy", "dtype", "O"),
    call("numpy", "dtype", [("a", "O")] * 3),
    call("numpy.core.multiarray", "scalar", 1, 2),
    call("numpy.core.multiarray", "_reconstruct", 1, 2, 3),
    _array((2**60,), _DTYPE, b""),
    _array((3,), _DTYPE, b"12345678" * 3),
    _array((-1,), _DTYPE, b"12345678"),
    _array((2,), b"cnumpy\ndtype\n" + pickle.dumps(("O8", False, True), 2)[2:-1] + b"R", [1, 2]),
    _array((2,), b"cnumpy\ndtype\n" + pickle.dumps(("O8", False, True), 2)[2:-1] + b"R", b"12345678" * 2),
    _laughs(),
    b"}" + b")" + b"\x85" * 500_000 + b"K\x01s",  # a deep tuple as a key, to be hashed
    b"]" * 50_000 + b"a" * 49_999,  # a deep list
    b"(" * 50_000 + b"t" * 50_000,  # a deep tuple
    b"\x8e" + struct.pack("<Q", 2**40),  # BINBYTES8, longer than the file
    b"\x8b" + struct.pack("<i", 2**30),  # LONG4
    b"T" + struct.pack("<i", -1),
    b"Nr" + struct.pack("<I", 2**31 - 1),  # LONG_BINPUT: a memo of two thousand million places
    b"\x82\x01",  # an extension
    b"Pintruder\n",  # a persistent id
    b"K\x01Q",
    b"I99999999999999999999999\n",
    b"Fnan\n",
    b"N",
    b"}",
)


def is_pickle(content: bytes) -> bool:
    """Protocol 2 or later."""
    return content[:1] == b"\x80" and 2 <= content[1:2][0] <= 5 if len(content) > 1 else False


def mutate(content: bytes, rng: random.Random) -> bytes:
    """A payload before, within or instead of the pickle, or one value of it replaced by another."""
    start, payload = content[:2], rng.choice(PAYLOADS)
    what = rng.random()
    if what < 0.25:
        return start + payload + b"."
    if what < 0.5:
        return start + payload + b"0" + content[2:]  # taken off the stack again
    if what < 0.9:
        return _replaced(content, payload, rng)
    return raw.mutate(content, rng)


def _replaced(content: bytes, payload: bytes, rng: random.Random) -> bytes:
    """One opcode that pushes a value replaced by the payload, or by another value."""
    opcodes = [(opcode, at) for opcode, _, at in pickletools.genops(content) if at is not None]
    at = rng.choice([at for opcode, at in opcodes if _pushes(opcode)])
    end = next(end for _, end in opcodes if end > at)
    return content[:at] + payload + content[end:]


def _pushes(opcode: pickletools.OpcodeInfo) -> bool:
    return not opcode.stack_before and len(opcode.stack_after) == 1 and opcode.name not in ("MARK", "PROTO", "FRAME")
