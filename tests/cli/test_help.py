"""The help of every command as a terminal shows it; `make test-lowest` tries it with the oldest typer and click."""

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fedotp.cli import _PANELS, app


def commands(of: typer.Typer, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What a user types for each command, and the function that does it."""
    for info in of.registered_commands:
        assert info.callback is not None
        yield (*words, info.name or info.callback.__name__.replace("_", "-")), info.callback
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, (*words, group.name) if group.name else words)


COMMANDS = dict(commands(app))
WIDTH = 80


def shown(words: tuple[str, ...]) -> list[str]:
    printed = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(WIDTH)})
    assert printed.exit_code == 0, printed.output
    return [line.rstrip() for line in printed.stdout.splitlines()]


def occur_in_order(words: list[str], text: list[str]) -> bool:
    rest = iter(text)
    return all(word in rest for word in words)


def test_every_command_is_looked_at() -> None:
    """And each is in a panel of the first page."""
    assert len(COMMANDS) > 30
    assert {words[0] for words in COMMANDS} == {name for names in _PANELS.values() for name in names}
    assert {("run",), ("compare",), ("predict",), ("server",), ("data", "partition"), ("data", "cache", "show")} <= set(
        COMMANDS
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_is_whole(words: tuple[str, ...]) -> None:
    """Each argument and option with all its words, paragraphs wrapped at the edge only, an example to a line."""
    lines = shown(words)
    assert max(map(len, lines)) <= WIDTH
    assert all(character.isprintable() for line in lines for character in line)
    printed = " ".join(lines).replace("│", " ").split()
    for parameter in inspect.signature(COMMANDS[words]).parameters.values():
        if parameter.annotation is not typer.Context:
            (info,) = parameter.annotation.__metadata__
            assert info.help, parameter
            assert occur_in_order(info.help.split(), printed), parameter
    assert occur_in_order(["--import", "MODULE", "Import", "methods,", "data", "sets"], printed)

    assert "Example" in COMMANDS[words].__doc__
    stripped = [line.strip() for line in lines]  # typer < 0.20.1 drops what examples are indented by
    paragraphs = inspect.cleandoc(COMMANDS[words].__doc__).split("\n\n")
    for paragraph in paragraphs:
        if paragraph.startswith("\b"):
            expected = paragraph.splitlines()[1:]
        else:
            expected = textwrap.wrap(paragraph, WIDTH - 2, break_on_hyphens=False)
        start = stripped.index(expected[0].strip())
        assert stripped[start : start + len(expected)] == [line.strip() for line in expected]
