"""Lazy imports of packages, `--import` of the user's files and modules, and entry points of installed packages.

`fedotp --import` passes its names in an environment variable, which child processes inherit.
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
_digests: dict[str, str] = {}  # of imported files, by module name


def name_imports(names: Sequence[str]) -> None:
    """Set the files (*.py) and modules that `import_named` imports, in this process and its children."""
    os.environ[VARIABLE] = os.pathsep.join(map(_named, names))


def import_options() -> list[str]:
    """Return the command-line options for the same imports."""
    return [word for name in _names() for word in ("--import", name)]


def import_named() -> None:
    """Import the named files and modules that have not been imported yet."""
    for name in _names():
        if name not in _loaded:
            _loaded.add(name)  # before the import, which may call this function again
            try:
                _import_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
            except Exception as error:
                _loaded.discard(name)
                raise FedotpError(f"cannot import {name}: {_located(error, name)}") from error


def source_of(module: str) -> dict[str, str]:
    """Return the origin of a module for records: its name, its file and the file's SHA-256.

    A file given to `--import` has no module name; a program (`__main__`) has no digest.
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
    """Return a name that is valid in every working directory."""
    if name.endswith(".py"):
        path = Path(name).expanduser().absolute()
        if not path.is_file():
            raise FedotpError(f"--import {name}: no such file")
        if os.pathsep in str(path):
            raise FedotpError(f"--import {name}: a path must not contain {os.pathsep!r}; rename it")
        return str(path)
    if not all(part.isidentifier() for part in name.split(".")):
        raise FedotpError(f"--import {name}: must be a .py file or a module such as package.module")
    return name


def _import_file(path: Path) -> None:
    """Run a file as a module with the same name in every process, so that its objects can be pickled."""
    path = path.absolute()  # the variable may contain a relative path
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


def _located(error: Exception, name: str) -> str:
    """Format an error in one line, with the innermost line of code outside fedotp."""
    what = one_line(error) if isinstance(error, FedotpError) else f"{type(error).__name__}: {one_line(error)}"
    here = os.path.dirname(__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(here)]
    frames = [frame for frame in frames if not frame.filename.startswith("<")]
    if not frames:
        return what
    place = "" if frames[-1].filename == name else f"{frames[-1].filename}, "
    return f"{place}line {frames[-1].lineno}: {what}"


def lazy_face(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package that imports its public names on first use.

    The names are declared once, for type checkers and this function, under `if TYPE_CHECKING:` in its `__init__.py` as
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
    """Return the sorted names of the entry points of a group, without importing them."""
    return sorted(entry_points(group=group).names)


def bring(group: str, name: str, what: str) -> tuple[Any, EntryPoint] | None:
    """Import the entry point `name` and return the object and the entry point; None if there is none.

    `what`, for example "method", names the kind of object in error messages.
    """
    offers = list(entry_points(group=group, name=name))
    if not offers:
        return None
    entry, *others = offers
    if others:
        packages = " and ".join(package_of(offer) for offer in offers)
        raise FedotpError(f"several packages provide the {what} {entry.name}: {packages}; uninstall all but one")
    try:
        return entry.load(), entry
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error)}"
        raise FedotpError(f"cannot import the {what} {entry.name} of {package_of(entry)}: {why}") from error


def package_of(entry: EntryPoint) -> str:
    """Return the package of an entry point and its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def origin(entry: EntryPoint | None) -> dict[str, str]:
    """Return the entry point and its package for records; empty if there is none."""
    return {"entry_point": entry.value, "package": package_of(entry)} if entry else {}
