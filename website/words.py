"""Draw texts that people read at random, to check them against the style guide in CONTRIBUTING.md.

python website/words.py messages --count 50 --seed 1      # errors, help texts, log lines, printed lines
python website/words.py docstrings --count 30 --seed 1
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fedotp"
_CALLS = {"echo", "print", "info", "warning", "error", "debug", "warn", "note", "say", "Option", "Argument"}


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and texts of exceptions, of calls that print or log, and of help texts; at least four words each."""
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            parts = [*node.exc.args]
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            parts = [*node.args] if name in _CALLS else []
            parts += [keyword.value for keyword in node.keywords if keyword.arg in ("help", "epilog", "short_help")]
        for part in parts:
            if len((found := text(part)).split()) >= 4:
                yield part.lineno, found


def text(node: ast.AST) -> str:
    """The text of an expression; what is filled in stands in braces."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text(value) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + "}"
    if isinstance(node, ast.BinOp):
        return text(node.left) + text(node.right)
    return ""


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and docstrings of modules, classes and functions."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and (found := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), found


def main() -> None:
    """Print the drawn texts with their places."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("messages", "docstrings"))
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    read = messages if given.kind == "messages" else docstrings
    files = sorted(SOURCE.rglob("*.py"))
    found = [(path.relative_to(SOURCE), *each) for path in files for each in read(ast.parse(path.read_text()))]
    for path, line, words in random.Random(given.seed).sample(found, min(given.count, len(found))):
        print(f"{path}:{line}: {words}")
    print(f"{len(found):,} {given.kind} in {len(files)} files")


if __name__ == "__main__":
    main()
