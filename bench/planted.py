"""Planted defects: how many random small changes to the code does the suite find?

    pip install pytest-cov
    pytest -m 'not processes' --cov=fedotp --cov-context=test --cov-report=
    python -m bench.planted --cases 100 --coverage .coverage --save planted.json

Each case changes one operator, constant, condition, order of arguments or statement of a copy of `src`, drawn evenly
over the packages, and runs tests that execute the changed lines, those of the same package first, until one fails. What
no test finds is listed with its change, to be looked at.
"""

import argparse
import ast
import collections
import contextlib
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
MOST_TESTS = 40  # of a case: the same package's first, then others
MOST_SECONDS = 240  # a change that makes a test run forever is found, too
# What needs a GPU to run at all, and files of other programs.
ELSEWHERE = ("_graphs.py", "ot/_graph.py", "ot/_fused.py", "prompts/_fused.py", "fedotp_app")

_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Defect:
    """One change: in lines `first` to `last` of a file, columns in bytes, `before` becomes `after`."""

    path: str
    kind: str
    first: int
    last: int
    start: int
    end: int
    before: str
    after: str

    def planted_in(self, text: str) -> str:
        """The text of the file with the change."""
        lines = text.encode().split(b"\n")
        head, tail = lines[self.first - 1][: self.start], lines[self.last - 1][self.end :]
        lines[self.first - 1 : self.last] = [head + self.after.encode() + tail]
        return b"\n".join(lines).decode()


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a node can be changed into, by the kind of change."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in _SWAPS:
            new.ops = [_SWAPS[type(op)]()]
            yield "operator", new
        case ast.BinOp(op=op, left=left) if type(op) in _SWAPS and not isinstance(left, ast.Constant | ast.JoinedStr):
            new.op = _SWAPS[type(op)]()
            yield "operator", new
        case ast.BoolOp(op=op):
            new.op = _SWAPS[type(op)]()
            yield "condition", new
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition", operand
        case ast.IfExp(body=body, orelse=orelse):
            new.body, new.orelse = orelse, body
            yield "condition", new
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant", ast.Constant(value * 2 if value else 1.0)
        case ast.Call(args=[first, second, *rest]) if not isinstance(first, ast.Starred):
            new.args = [second, first, *rest]
            if ast.dump(first) != ast.dump(second):
                yield "order", new
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield "dropped", ast.Pass()
        case ast.Return(value=ast.expr()):
            new.value = ast.Constant(None)
            yield "dropped", new


def defects(path: str, text: str) -> Iterator[Defect]:
    """All changes that can be made to a file; annotations and type-checking blocks have none that would matter."""
    lines = text.encode().split(b"\n")
    for node in _code(ast.parse(text)):
        for kind, new in changes(node):
            ast.fix_missing_locations(ast.copy_location(new, node))
            after = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
            assert isinstance(node, ast.expr | ast.stmt)  # which have places
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            first, last, start, end = node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
            before = b"\n".join(lines[first - 1 : last])[start:].decode()
            yield Defect(path, kind, first, last, start, end, before.split("\n")[0], after)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    for name, child in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or (isinstance(node, ast.JoinedStr)):
            continue
        for part in child if isinstance(child, list) else [child]:
            if isinstance(part, ast.AST) and "TYPE_CHECKING" not in ast.dump(getattr(part, "test", ast.Pass())):
                yield part
                yield from _code(part)


def drawn(n: int, seed: int) -> list[Defect]:
    """`n` defects, the same number of each package as far as it goes, each of a file drawn by its size."""
    rng, source = random.Random(seed), REPOSITORY / "src"
    by_package: dict[str, list[Defect]] = collections.defaultdict(list)
    for path in sorted((source / "fedotp").rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if not any(part in name for part in ELSEWHERE):
            parts = name.split("/")
            by_package[parts[1] if len(parts) > 2 else "root"] += defects(name, path.read_text(encoding="utf-8"))
    packages = [by_package[name] for name in sorted(by_package)]
    return [rng.choice(packages[i % len(packages)]) for i in range(n)]


class Tests:
    """Which tests execute which lines, by a coverage file with contexts."""

    def __init__(self, coverage_file: str, root: str) -> None:
        from coverage import CoverageData

        self.data, self.root = CoverageData(coverage_file), root
        self.data.read()

    def of(self, defect: Defect) -> list[str]:
        """At most `MOST_TESTS` that execute the changed lines: of the same package first, then the others in turn."""
        by_line = self.data.contexts_by_lineno(f"{self.root}/src/{defect.path}")
        own = {test for line in range(defect.first, defect.last + 1) for test in by_line.get(line, ())} - {""}
        found = sorted({test.split("|")[0] for test in own or {t for tests in by_line.values() for t in tests} - {""}})
        random.Random(0).shuffle(found)
        parts = defect.path.split("/")
        folder = f"tests/{parts[1]}/" if len(parts) > 2 else "tests/test_"
        near = [test for test in found if test.startswith(folder)]
        far = [test for test in found if not test.startswith(folder)]
        files: dict[str, list[str]] = collections.defaultdict(list)
        for test in far:
            files[test.split("::")[0]].append(test)
        turns = [tests[i] for i in range(MOST_TESTS) for tests in files.values() if i < len(tests)]
        return (near[: MOST_TESTS // 2] + turns)[:MOST_TESTS] if turns else near[:MOST_TESTS]


def is_found(defect: Defect, tests: list[str], tree: Path) -> bool:
    """Whether a test fails, or does not end, with the change in place; in a process of its own, which is forked."""
    path = tree / "src" / defect.path
    text = path.read_text(encoding="utf-8")
    path.write_text(defect.planted_in(text), encoding="utf-8")
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(tree)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.environ["PYTHONPATH"] = str(tree / "src")
        sys.path.insert(0, str(tree / "src"))
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", *tests])))
    end = time.monotonic() + MOST_SECONDS
    status = 1
    while time.monotonic() < end:
        done, how = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(how)
            break
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    path.write_text(text, encoding="utf-8")
    return status != 0


def main() -> None:
    """Plant, test, record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coverage", default=".coverage", help="a coverage file with one context per test")
    parser.add_argument("--root", default=str(REPOSITORY), help="where the coverage file was made")
    parser.add_argument("--save", type=Path, default=Path("planted.json"))
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    tests, cases = Tests(args.coverage, args.root), []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(
            REPOSITORY, tree, ignore=shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")
        )
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        for i, defect in enumerate(drawn(args.cases, args.seed)):
            chosen = tests.of(defect)
            found = bool(chosen) and is_found(defect, chosen, tree)
            cases.append(asdict(defect) | {"found": found, "tests": len(chosen)})
            print(
                f"{i:3} {'found ' if found else 'missed'} {defect.path}:{defect.first} {defect.kind}: {defect.after}",
                flush=True,
            )
            n_found = sum(case["found"] for case in cases)
            record = {
                "cases": len(cases),
                "found": n_found,
                "seed": args.seed,
                "missed": [c for c in cases if not c["found"]],
            }
            args.save.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{n_found} of {len(cases)} found")


if __name__ == "__main__":
    main()
