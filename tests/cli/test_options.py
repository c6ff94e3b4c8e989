"""Options that commands share lie in one place."""

import ast
from pathlib import Path

import pytest

import fedotp.cli

FOLDER = Path(fedotp.cli.__file__).parent


def assigns_app(path: Path) -> bool:
    """Whether the module is a command, or a group of them."""
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "app"
        for node in ast.parse(path.read_text()).body
    )


COMMANDS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__" and assigns_app(path))


def imported(path: Path) -> set[str]:
    """The modules of fedotp.cli that a module imports, anywhere in it."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    within = {
        node.module.removeprefix("fedotp.cli.") for node in nodes if (node.module or "").startswith("fedotp.cli.")
    }
    return within | {name.name for node in nodes if node.module == "fedotp.cli" for name in node.names}


def test_every_command_is_there() -> None:
    assert imported(FOLDER / "__init__.py") >= set(COMMANDS)
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"])
def test_nothing_is_borrowed_from_a_command(name: str) -> None:
    assert not imported(FOLDER / f"{name}.py") & set(COMMANDS)
