"""The house keeps the rules of docs/architecture.md: private names, faces, the order of its rooms."""

import importlib
import re
from pathlib import Path

import pytest

from house import breaches, rooms_of
from import_graph import Module

REPOSITORY = Path(__file__).parents[1]
SOURCES = {
    path.relative_to(REPOSITORY / "src").as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((REPOSITORY / "src/fedotp").rglob("*.py"))
}
PAGE = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")


def test_the_house_is_in_order() -> None:
    found = breaches(SOURCES, rooms_of(PAGE))
    assert not found, "\n".join(["", *found])


def test_files_named_in_comments_are_there() -> None:
    for path, text in SOURCES.items():
        for name in re.findall(r"`([\w/]+\.py)`", text):
            beside = f"{path.rpartition('/')[0]}/{name}"
            assert {beside, f"fedotp/{name}"} & SOURCES.keys() or (REPOSITORY / name).is_file(), f"{path} names {name}"


def test_what_a_room_shows_is_there() -> None:
    """Also what it imports only when it is asked for; and its names are few enough to be known."""
    faces = {path: Module(path, text) for path, text in SOURCES.items() if path.endswith("/__init__.py")}
    n_names = 0
    for path, module in faces.items():
        if "_app" not in path:
            room = importlib.import_module(".".join(module.name))
            assert [name for name in module.face if not hasattr(room, name)] == [], path
            n_names += len(module.face)
    most = re.search(r"at most (\d+) public names", PAGE)
    assert most is not None
    assert n_names <= int(most[1])


# The rules themselves, on a house of a few lines ---------------------------------------------------------------

TABLE = """
| room | contains |
|---|---|
| the root: `errors`, `_*` | files |
| `ot` | plans |
| `matching` | scores |
| `data` | images |
| `runs` | directories |
"""

HOUSE = {
    "fedotp/__init__.py": """
        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from fedotp.runs import run as run

        __version__ = "1"
        """,
    "fedotp/errors.py": "class FedotpError(Exception): ...",
    "fedotp/_files.py": "from fedotp.errors import FedotpError\ndef read(): ...",
    "fedotp/ot/__init__.py": "from fedotp.ot._solve import solve as solve",
    "fedotp/ot/_solve.py": "from fedotp import _files\ndef solve(): return _files.read()\ndef _newton(): ...",
    "fedotp/matching.py": "from fedotp import ot\n_LEAST = 1e-6\ndef match(): return ot.solve()",
    "fedotp/data/__init__.py": """
        from typing import TYPE_CHECKING
        from fedotp.data.sets import Dataset as Dataset

        if TYPE_CHECKING:
            from fedotp.data.store import Store as Store
        """,
    "fedotp/data/_names.py": "def readable(): ...",
    "fedotp/data/sets/__init__.py": "from fedotp.data.sets._dataset import Dataset as Dataset",
    "fedotp/data/sets/_dataset.py": "from fedotp.data._names import readable\nclass Dataset: _rows = ()",
    "fedotp/data/store/__init__.py": "from fedotp.data.store._store import Store as Store",
    "fedotp/data/store/_store.py": "from fedotp.data import Dataset\nclass Store:\n    def open(self): self._rows = 1",
    "fedotp/runs/__init__.py": "from fedotp.runs._run import run as run",
    "fedotp/runs/_run.py": """
        import fedotp
        from fedotp.data.store import Store

        def run(store):
            import fedotp.matching
            if store is None:
                store = Store()
            data = store.data
            return fedotp.matching.match(), fedotp.__version__, data._unknown
        """,
    "fedotp/runs/app/run_app/__init__.py": '"""A template that is not imported as a part of fedotp."""',
}


def broken(changes: dict[str, str], table: str = TABLE) -> list[str]:
    house = {
        path: "\n".join(line.removeprefix("        ") for line in text.split("\n")) for path, text in HOUSE.items()
    }
    return breaches(house | changes, rooms_of(table))


def test_nothing_is_wrong_with_a_house_that_keeps_the_rules() -> None:
    assert broken({}) == []


OF_OT = "private to fedotp/ot; import "
PRIVATE = [
    ("from fedotp.ot._solve import solve", "fedotp.ot._solve.solve", f"{OF_OT}solve from fedotp.ot"),
    ("def late():\n    from ..ot._solve import solve", "fedotp.ot._solve.solve", OF_OT),
    ("if TYPE_CHECKING:\n    from fedotp.ot._solve import solve", "fedotp.ot._solve.solve", OF_OT),
    ("import_module('fedotp.ot._solve')", "fedotp.ot._solve", f"{OF_OT}what is needed from fedotp.ot and put it on"),
    ("start('-m', 'fedotp.ot._solve')", "fedotp.ot._solve", OF_OT),
    (
        "from fedotp.data._names import readable",
        "fedotp.data._names.readable",
        "private to fedotp/data; import readable",
    ),
    ("from fedotp.data.store import _store", "fedotp.data.store._store", "private to fedotp/data/store; import what"),
    ("from fedotp.matching import _LEAST", "fedotp.matching._LEAST", "private to fedotp/matching; import what"),
    ("def size(store): return store._rows", "._rows", "private to fedotp/data/sets and fedotp/data/store; "),
]
ABSENT = [
    ("from fedotp.ot import plan", "plan is not on the face of fedotp.ot; put it on its face, or use what is there"),
    ("from fedotp import ot\ndef f(): return ot.plan()", "plan is not on the face of fedotp.ot; "),
    ("from fedotp import run", "fedotp.run is the front door, for users; import run from fedotp.runs"),
    ("from fedotp.gone import it", "fedotp.gone does not exist; write out the name of a module that does"),
    ("import_module(f'fedotp.runs.{name}')", "fedotp.runs.{...} does not exist; "),
]


@pytest.mark.parametrize(("line", "what"), [*((line, f"{name} is {why}") for line, name, why in PRIVATE), *ABSENT])
def test_what_a_room_must_not_take_from_another(line: str, what: str) -> None:
    (found,) = broken({"fedotp/runs/_other.py": line})
    n_lines = line.count("\n") + 1
    assert found.startswith(f"fedotp/runs/_other.py:{n_lines}: {what}")


def test_rooms_import_upwards_only() -> None:
    assert broken({"fedotp/ot/_late.py": "def f():\n    from fedotp.data import Store"}) == [
        "fedotp/ot/_late.py:2: ot is above data in the table of rooms and must not depend on it; "
        "move what both need up, or this down"
    ]
    (found,) = broken({"fedotp/_text.py": "import fedotp.matching"})
    assert found.startswith("fedotp/_text.py:1: _text is above matching")


def test_rooms_and_rows_find_each_other() -> None:
    assert broken({"fedotp/new.py": ""}) == [
        "fedotp/new: is missing from the table of rooms; give it a row below all that it imports"
    ]
    assert broken({}, TABLE + "| `gone` | | |\n") == [
        "fedotp/gone: is in the table of rooms and not in the house; take the row out"
    ]
    with pytest.raises(ValueError, match="no table"):
        rooms_of("| room |\n|---|\n| `ot` |\n")


def test_rooms_and_their_folders_do_not_go_in_circles() -> None:
    """`store` takes `Dataset` from the face of `data`, but it is made in `sets`: `sets` may not ask `store` back."""
    (found,) = broken({"fedotp/data/sets/_kept.py": "def f():\n    from fedotp.data import Store"})
    assert found == (
        "fedotp/data/sets/_kept.py:2: fedotp/data/sets -> fedotp/data/store -> fedotp/data/sets is a circle "
        "(fedotp/data/sets/_kept.py:2, fedotp/data/store/_store.py:1); "
        "move what both need to where both may import it"
    )
    (found,) = broken({"fedotp/data/_names.py": "from fedotp.data.sets import Dataset\ndef readable(): ..."})
    assert "fedotp/data/_names -> fedotp/data/sets" in found or "fedotp/data/sets -> fedotp/data/_names" in found
    found = broken({"fedotp/ot/_late.py": "from fedotp import runs"})
    assert [line for line in found if " fedotp/matching -> fedotp/ot -> fedotp/runs -> fedotp/matching " in line]


def test_a_face_shows_what_is_there() -> None:
    face = "from fedotp.ot._solve import solve as solve\nfrom fedotp.ot._solve import plan as plan"
    assert "fedotp/ot/__init__.py:2: plan does not exist there; import it from where it is, or take it out" in broken(
        {"fedotp/ot/__init__.py": face}
    )


INNER = TABLE.replace("| `data` |", "| `data`, `data/_*` | names | |\n| `data/sets` | | |\n| `data/store` |")
"""The same house, with rows for the inner rooms of `data`."""


def test_inner_rooms_have_an_order_of_their_own() -> None:
    assert broken({}, INNER) == []
    (found,) = broken({"fedotp/data/_late.py": "from fedotp.data.sets import Dataset"}, INNER)
    assert found.startswith("fedotp/data/_late.py:1: data/_late is above data/sets in the table of rooms")
    late = {"fedotp/data/sets/_late.py": "def f():\n    from fedotp.data import Store"}
    found = broken(late, INNER)
    assert any("sets/_late.py:2: data/sets is above data/store in the table of rooms" in line for line in found)
    assert broken({"fedotp/data/new/_a.py": ""}, INNER) == [
        "fedotp/data/new: is missing from the table of rooms; give it a row below all that it imports"
    ]
    assert broken({}, INNER + "| `data/gone` | | |\n") == [
        "fedotp/data/gone: is in the table of rooms and not in the house; take the row out"
    ]
