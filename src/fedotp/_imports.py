"""Imports: parts of packages when they are first used, files and modules of the user, and entry points of packages.

`fedotp --import` names files and modules by an environment variable, which processes started from here inherit.
"""

import ast
import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from fedotp._files import read_regular
from fedotp._text import one_line
from fedotp.errors import FedotpError

VARIABLE = "FEDOTP_IMPORT"
_MOST_BYTES = 16 << 20  # of a file
_loaded: set[str] = set()
_digests: dict[str, str] = {}  # of the files, by the names of their modules


def name_imports(names: Sequence[str]) -> None:
    """Say what `import_named` is to import, here and in processes started from here: files (*.py) and modules."""
    os.environ[VARIABLE] = os.pathsep.join(map(_named, names))


def import_options() -> list[str]:
    """What a command line must say so that the same is imported."""
    return [word for name in _names() for word in ("--import", name)]


def import_named() -> None:
    """Import what was named and has not been imported yet."""
    for name in _names():
        if name not in _loaded:
            _loaded.add(name)  # before it is: what it imports may come here again
            try:
                _import_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
            except Exception as error:
                _loaded.discard(name)
                raise FedotpError(f"{name} cannot be imported: {_what_went_wrong(error, name)}") from error


def source_of(module: str) -> dict[str, str]:
    """Where a module's code came from, for records: its name, its file and the file's SHA-256.

    A file that was named has no name as a module. Of a program, which is more than a module, there is no digest.
    """
    facts = {} if module in _digests else {"module": module}
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not os.path.isfile(file):
        return facts
    facts["file"] = os.path.abspath(file)
    if module not in ("__main__", "__mp_main__"):
        facts["sha256"] = _digests.get(module) or hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return facts


def _names() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]


def _named(name: str) -> str:
    """The name as it means the same in every folder."""
    if name.endswith(".py"):
        path = Path(name).expanduser().absolute()
        if not path.is_file():
            raise FedotpError(f"--import {name}: no such file")
        if os.pathsep in str(path):
            raise FedotpError(f"--import {name}: a path with {os.pathsep!r} in it cannot be handed on; rename it")
        return str(path)
    if not all(part.isidentifier() for part in name.split(".")):
        raise FedotpError(f"--import {name}: must be a file that ends in .py, or a module such as package.module")
    return name


def _import_file(path: Path) -> None:
    """Run a file as a module, whose name is the same in every process, for objects that go from one to another."""
    path = path.absolute()  # the variable may hold a relative path
    code = read_regular(path, _MOST_BYTES)
    name = f"fedotp_import_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    _digests[name] = hashlib.sha256(code).hexdigest()
    try:
        exec(compile(code, path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name], _digests[name]
        raise


def _what_went_wrong(error: Exception, name: str) -> str:
    """In one line, with the line of the innermost code that is not fedotp's."""
    what = one_line(error) if isinstance(error, FedotpError) else f"{type(error).__name__}: {one_line(error)}"
    here = os.path.dirname(__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(here)]
    frames = [frame for frame in frames if not frame.filename.startswith("<")]
    if not frames:
        return what
    place = "" if frames[-1].filename == name else f"{frames[-1].filename}, "
    return f"{place}line {frames[-1].lineno}: {what}"


def lazy_face(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that imports its public names on first use, to start quickly.

    The names stand once, for type checkers and for this function: under `if TYPE_CHECKING:` in its `__init__.py`, as
    `from fedotp.room._module import name as name`.
    """
    tree = ast.parse(Path(sys.modules[package].__file__ or "").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    origin = {
        alias.name: node.module or package
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def find(name: str) -> object:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if origin[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(origin[name]), name)

    return find, lambda: sorted(origin)


def offered(group: str) -> list[str]:
    """The names that packages offer in a group, sorted; nothing is imported."""
    return sorted(entry_points(group=group).names)


def bring(group: str, name: str, what: str) -> tuple[Any, EntryPoint] | None:
    """What a package offers under a name, imported, and its entry point; None if there is none.

    `what` it is, "method" for example, opens a refusal.
    """
    offers = list(entry_points(group=group, name=name))
    if not offers:
        return None
    entry, *others = offers
    if others:
        packages = " and ".join(package_of(offer) for offer in offers)
        raise FedotpError(f"the {what} {entry.name} is in {packages}; uninstall all but one")
    try:
        return entry.load(), entry
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error)}"
        raise FedotpError(f"the {what} {entry.name} of {package_of(entry)} cannot be imported: {why}") from error


def package_of(entry: EntryPoint) -> str:
    """The package of an entry point and its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def origin(entry: EntryPoint | None) -> dict[str, str]:
    """For records: nothing of what did not come by an entry point."""
    return {"entry_point": entry.value, "package": package_of(entry)} if entry else {}
