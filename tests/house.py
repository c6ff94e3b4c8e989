"""The rules of the rooms (docs/architecture.md) as a function from source text to the lines that break them."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import pairwise

from import_graph import ROOT, Graph, Module, Name, Use, is_private

Rooms = Sequence[tuple[str, ...]]
"""From the top down; more than one name, or a pattern, where several files make one room."""


def rooms_of(page: str) -> Rooms:
    """The names in the first column of the table `| room | contains |`, row by row."""
    table = re.search(r"^\| room \| contains \|\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    if table is None:
        raise ValueError("there is no table | room | contains |")
    return [tuple(re.findall(r"`([^`]+)`", row.split("|")[1])) for row in table[1].splitlines()]


def breaches(sources: Mapping[str, str], rooms: Rooms) -> list[str]:
    """A line for each breach: where, what, and what would be right.

    `sources` are texts by path, such as fedotp/ot/_solve.py.
    """
    graph = Graph(sources)
    found = [*_in_table(graph, rooms), *_circles(graph)]
    for module in graph.modules.values():
        found += [f"{module.path}:{line}: {what}" for line, what in _in_face(graph, module)]
        found += [f"{module.path}:{line}: {what}" for line, what in _in_attributes(graph, module)]
        for use in graph.uses[module.name]:
            wrong = [*_in_privacy(graph, module, use), *_in_order(graph, module, use, rooms)]
            found += [f"{module.path}:{use.line}: {what}" for what in wrong]
    return sorted(found)


def _row(rooms: Rooms, module: Name) -> int | None:
    """The row of a module: that of its inner room, "room/inner", if the table has it, else that of its room."""
    for place in ("/".join(module[1:3]), module[1]):
        named = (i for i, row in enumerate(rooms) if place in row)
        patterns = (i for i, row in enumerate(rooms) if any(fnmatch(place, pattern) for pattern in row))
        if (row := next(named, next(patterns, None))) is not None:
            return row
    return None


def _in_table(graph: Graph, rooms: Rooms) -> Iterator[str]:
    """Rooms and rows that do not find each other; a room that has rows for inner rooms has them for all its folders."""
    divided = {pattern.split("/")[0] for row in rooms for pattern in row if "/" in pattern}
    there = {name[1] for name in graph.modules if len(name) > 1}
    inner = {"/".join(name[1:3]) for name in graph.modules if len(name) > 2}
    folders = {"/".join(name[1:3]) for name in graph.modules if len(name) > 3 and name[1] in divided}
    listed = [pattern for row in rooms for pattern in row]
    for room in sorted(there | folders):
        if not any(fnmatch(room, pattern) for pattern in listed):
            yield f"{ROOT}/{room}: is missing from the table of rooms; give it a row below all that it imports"
    for pattern in listed:
        if not any(fnmatch(room, pattern) for room in there | inner):
            yield f"{ROOT}/{pattern}: is in the table of rooms and not in the house; take the row out"


def _in_face(graph: Graph, module: Module) -> Iterator[tuple[int, str]]:
    """A name that a package hands on and that is not there."""
    for name, line in module.handed_on.items():
        if graph.origin(module.name, name) is None:
            yield line, f"{name} does not exist there; import it from where it is, or take it out"


def _in_attributes(graph: Graph, module: Module) -> Iterator[tuple[int, str]]:
    """Private attributes of objects that other folders made."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            homes = {m.home for m in graph.modules.values() if node.attr in m.private_definitions}
            if homes and not any(_within(module.name, home) for home in homes):
                where = " and ".join(sorted("/".join(home) for home in homes))
                yield node.lineno, f".{node.attr} is private to {where}; give it a public name there"


def _in_privacy(graph: Graph, module: Module, use: Use) -> Iterator[str]:
    """Something that is not there, private to another folder, or not on its face."""
    target, dotted = graph.modules.get(use.module), ".".join(use.module)
    if target is None:
        yield f"{dotted} does not exist; write out the name of a module that does"
        return
    name = use.name or ""
    homes = [use.module[:n] for n, part in enumerate(use.module) if is_private(part)]
    homes += [target.home] if is_private(name) else []
    for home in [home for home in homes if not _within(module.name, home)][:1]:
        wanted = "what is needed" if is_private(name) else name or "what is needed"
        there = home in graph.modules and wanted in graph.modules[home].face
        right = f"import {wanted} from {'.'.join(home)}" + ("" if there else " and put it on its face")
        yield f"{dotted}{'.' if name else ''}{name} is private to {'/'.join(home)}; {right}"
    is_open = homes or _within(module.name, target.home) or name.startswith("__")
    if name and not is_open and name not in target.face:
        yield f"{name} is not on the face of {dotted}; put it on its face, or use what is there"


def _in_order(graph: Graph, module: Module, use: Use, rooms: Rooms) -> Iterator[str]:
    """A room further down; or the front door, behind which are all rooms."""
    if module.name == (ROOT,):
        return
    if use.module == (ROOT,):
        if use.name and not use.name.startswith("__"):
            room = ".".join((graph.origin(use.module, use.name) or (ROOT, "its room"))[:2])
            yield f"{ROOT}.{use.name} is the front door, for users; import {use.name} from {room}"
        return
    made_in = (graph.origin(use.module, use.name) if use.name else None) or use.module
    same_room = module.name[1] == use.module[1]
    if same_room and module.is_package:
        return  # a face hands on what is below it
    target = made_in if same_room else use.module
    own, other = _row(rooms, module.name), _row(rooms, target)
    if own is not None and other is not None and own < other:
        names = ["/".join(name[1 : 3 if same_room else 2]) for name in (module.name, target)]
        yield (
            f"{names[0]} is above {names[1]} in the table of rooms and must not depend on it; "
            f"move what both need up, or this down"
        )


def _circles(graph: Graph) -> Iterator[str]:
    """Rooms, or folders and files side by side in one folder, that import each other in a circle.

    A name counts where it is made, not where it is handed on: a face imports from its whole folder. Files of one folder
    may lean on each other.
    """
    lines: dict[tuple[Name, Name], str] = {}
    for module in graph.modules.values():
        for use in graph.uses[module.name]:
            target = (graph.origin(use.module, use.name) if use.name else None) or use.module
            same = next((n for n, (a, b) in enumerate(zip(module.name, target, strict=False)) if a != b), None)
            if same is not None:
                step = module.name[: same + 1], target[: same + 1]
                lines.setdefault(step, f"{module.path}:{use.line}")
    told: set[Name] = set()
    for start in sorted({start for start, _ in lines}):
        is_file = start in graph.modules and not graph.modules[start].is_package
        way = [] if start in told or (is_file and len(start) > 2) else _way_round(start, lines)
        if way:
            told.update(way)
            names, each = " -> ".join("/".join(name) for name in way), [lines[step] for step in pairwise(way)]
            yield f"{each[0]}: {names} is a circle ({', '.join(each)}); move what both need to where both may import it"


def _way_round(start: Name, steps: Mapping[tuple[Name, Name], str]) -> list[Name]:
    """The shortest way from `start` back to it, if there is one."""
    ways = [[start]]
    for way in ways:
        for end in (end for begin, end in steps if begin == way[-1]):
            if end == start:
                return [*way, end]
            if not any(end in other for other in ways):
                ways.append([*way, end])
    return []


def _within(module: Name, home: Name) -> bool:
    return module[: len(home)] == home
