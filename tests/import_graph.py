"""What the modules of fedotp name of each other, read from their source text alone: nothing is imported.

A module is the tuple of its parts, ("fedotp", "ot", "_solve"); a package is the module of its folder.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

Name = tuple[str, ...]

ROOT = "fedotp"
_PRIVATE_MODULE = re.compile(rf"{ROOT}(\.\w+)*\._\w+")  # in a string: what another process is to run
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Use:
    """A module that a line names, and what it takes from it, if it says so."""

    line: int
    module: Name
    name: str | None = None


class Module:
    """One file."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.tree = ast.parse(source, path)
        *folder, stem = PurePosixPath(path).with_suffix("").parts
        self.is_package = stem == "__init__"
        self.folder: Name = tuple(folder)
        self.name: Name = self.folder if self.is_package else (*folder, stem)
        # Where its private names are at home: in its folder; a file beside the rooms is a room by itself.
        self.home: Name = self.name if self.folder == (ROOT,) else self.folder

    @cached_property
    def bound(self) -> dict[str, ast.AST]:
        """The statements that define or import the names of the module, also those under `if` and `try`."""
        names: dict[str, ast.AST] = {}
        for node in _own_nodes(self.tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names[name] = node
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    names |= {alias.asname or alias.name.split(".")[0]: node for alias in aliases}
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    names[name] = node
        return names

    @cached_property
    def face(self) -> frozenset[str]:
        """What other folders may take: what is defined here, and what a package imports `as` the same name."""
        defined = {name for name, node in self.bound.items() if not isinstance(node, _Import)}
        return frozenset(filter(lambda name: not name.startswith("_"), defined | self.handed_on.keys()))

    @cached_property
    def handed_on(self) -> dict[str, int]:
        """The names that a package imports `as` themselves for others to take, and the lines that do."""
        imports = (node for node in _own_nodes(self.tree) if isinstance(node, ast.ImportFrom) and self.is_package)
        return {alias.name: node.lineno for node in imports for alias in node.names if alias.name == alias.asname}

    @cached_property
    def private_definitions(self) -> frozenset[str]:
        """Functions, classes, variables and attributes that are given a private name here."""
        found = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    found.add(name)
        return frozenset(filter(is_private, found))

    def by_string(self, node: ast.AST) -> Iterator[Use]:
        """What a call of `import_module` names, such as "fedotp.room"; a name that is made up at run time is none."""
        match node:
            case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"), args=[asked, *_]):
                match asked:
                    case ast.Constant(value=str(text)) if _parts(text)[0] == ROOT:
                        yield Use(node.lineno, _parts(text))
                    case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if _parts(text)[0] == ROOT:
                        yield Use(node.lineno, (*_parts(text.rstrip(".")), "{...}"))


class Graph:
    """All modules, by name."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        modules = (Module(path, source) for path, source in sorted(sources.items()))
        self.modules = {module.name: module for module in modules}

    @cached_property
    def uses(self) -> dict[Name, list[Use]]:
        """What each module names of the others: by imports anywhere in it, by attributes of modules, by strings."""
        return {name: list(dict.fromkeys(self._below(m, m.tree, {}))) for name, m in self.modules.items()}

    def origin(self, target: Name, name: str) -> Name | None:
        """The module that defines what `target` has under `name`, through all that hand it on; None if none does."""
        module = self.modules.get(target)
        if module is None:
            return None
        node = module.bound.get(name)
        if isinstance(node, ast.ImportFrom):
            for alias, use in self._from(module, node):
                if (alias.asname or alias.name) == name:
                    return self.origin(use.module, use.name) if use.name else use.module
        return target if node else None

    def _below(self, module: Module, node: ast.AST, known: Mapping[str, Name]) -> Iterator[Use]:
        """The uses below `node`, where the names in `known` stand for modules."""
        if isinstance(node, ast.Module | _Function):
            known = {name: target for name, target in known.items() if name not in _given_anew(node)}
            for child in _own_nodes(node):
                known |= self._names_for_modules(module, child)
        match node:
            case ast.Import(names=aliases):
                yield from (Use(node.lineno, parts) for alias in aliases if (parts := _parts(alias.name))[0] == ROOT)
            case ast.ImportFrom():
                yield from (use for _, use in self._from(module, node))
            case ast.Attribute() if (chain := _chain(node)) and chain[0] in known:
                yield self._attribute(node.lineno, (*known[chain[0]], *chain[1:]))
                return
            case ast.Call():
                yield from module.by_string(node)
            case ast.Constant(value=str(text)) if _PRIVATE_MODULE.fullmatch(text):
                yield Use(node.lineno, _parts(text))
        for child in ast.iter_child_nodes(node):
            yield from self._below(module, child, known)

    def _names_for_modules(self, module: Module, node: ast.AST) -> dict[str, Name]:
        """What stands for a module of the house after this statement."""
        if isinstance(node, ast.ImportFrom):
            return {alias.asname or alias.name: use.module for alias, use in self._from(module, node) if not use.name}
        if isinstance(node, ast.Import):
            ours = [alias for alias in node.names if _parts(alias.name)[0] == ROOT]
            return {alias.asname or ROOT: _parts(alias.name) if alias.asname else (ROOT,) for alias in ours}
        return {}

    def _from(self, module: Module, node: ast.ImportFrom) -> list[tuple[ast.alias, Use]]:
        start = module.folder[: len(module.folder) + 1 - node.level] if node.level else ()
        source = start + (_parts(node.module) if node.module else ())
        if source[0] != ROOT:
            return []
        wholes = [(*source, alias.name) for alias in node.names]
        uses = [Use(node.lineno, *((whole,) if whole in self.modules else (source, whole[-1]))) for whole in wholes]
        return list(zip(node.names, uses, strict=True))

    def _attribute(self, line: int, parts: Name) -> Use:
        """As much of a.b.c.d as is a module, and what is taken from it."""
        n = next(n for n in range(len(parts), 0, -1) if parts[:n] in self.modules or n == 1)
        return Use(line, parts[:n], parts[n] if n < len(parts) else None)


def is_private(name: str) -> bool:
    """One leading underscore."""
    return name.startswith("_") and not name.startswith("__")


def _parts(dotted: str) -> Name:
    return tuple(dotted.split("."))


def _chain(node: ast.expr) -> Name:
    """a.b.c as its parts; nothing if it does not start with a name."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=attr) if before := _chain(value):
            return (*before, attr)
    return ()


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module or function, without what is inside its functions and classes."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, _Function | ast.ClassDef):
            yield from _own_nodes(child)


def _given_anew(scope: ast.AST) -> set[str]:
    """The names to which a function gives a meaning of its own: its arguments and what it assigns."""
    assigned = {n.id for n in _own_nodes(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return assigned | {n.arg for n in _own_nodes(scope) if isinstance(n, ast.arg)}
