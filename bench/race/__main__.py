"""Run the race and print its table.

python -m bench.race                 the whole table: 1,000 clients, two methods, two ways; then 10 to 10,000 clients
python -m bench.race loop flower     some engines beside fedotp
python -m bench.race --part growth   a part of it: "ways" or "growth"
python -m bench.race --only tutorial works whose title contains a text
python -m bench.race --part vit      ViT-B/16's shapes, 37 classes, 10 clients; meant for a GPU
python -m bench.race --save          record the figures under bench/results/race-<cpu or gpu>.json

The exit status is 1 if the prompts of an engine differ from fedotp's.
"""

import argparse
import ast
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from bench._record import save
from bench.race.one import COMPARED
from bench.race.work import CACHE, Work

TITLES = {
    "loop": "plain PyTorch loop",
    "pfllib": "PFLlib's loop, restated",
    "flower": "Flower's simulation",
    "pfl": "Apple's pfl",
    "ours": "fedotp",
}
TOLERANCE = 1e-5
_HERE = Path(__file__).parent
_PFL = CACHE.parent / "pfl" / "bin" / "python"
_COLUMNS = ("start, s", "first, s", "warm, s", "/ fedotp", "CPU, s", "/ fedotp CPU", "peak MiB")
_SLOW = 10  # clients sampled in the way of tutorials, where 100 take a minute; time is proportional to them
_METHODS: tuple[Literal["promptfl", "fedotp"], ...] = ("promptfl", "fedotp")
_GROWTH = (10, 100, 1_000, 10_000)
_NOT_USERS = {"pfllib": ("Client", "Server"), "flower": ("GivenClients",), "pfl": ("Report",)}
"""Definitions that an engine provides, here restated, or that only the race needs."""


def works(part: str) -> Iterator[tuple[str, Work]]:
    """Yield the titles and works of a part of the table."""
    base = Work()
    if part == "growth":
        for method, n in product(_METHODS, _GROWTH):
            work = replace(base, method=method, clients=n, sampled=min(n, base.sampled))
            yield _title(work), work
        return
    if part == "vit":
        base = Work(backbone="vit", clients=10, sampled=10, images=59, epochs=5)
    for method in _METHODS:
        cached = replace(base, method=method)
        slow = replace(cached, way="tutorial", sampled=min(_SLOW, base.sampled), epochs=1)
        yield _title(cached), cached
        yield _title(slow), slow
        if part == "ways":
            both = replace(cached, threads=2)
            yield _title(both), both


def _title(work: Work) -> str:
    of = f"ViT-B/16, {work.epochs} x " if work.backbone == "vit" else ""
    threads = f", {work.threads} threads" if work.threads > 1 else ""
    return f"{work.method}, {work.way}, {of}{work.sampled} of {work.clients:,} clients{threads}"


def run(engine: str, work: Work, limit: float) -> dict[str, Any] | str:
    """Run an engine in its own process; return what `bench.race.one` measured, or why there is no result."""
    python = sys.executable
    if engine == "pfl":
        if not _PFL.exists():
            return f"no environment in {_PFL.parents[1]} (bench/race/README.md)"
        python = str(_PFL)
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder) / "result.json", Path(folder) / "log"
        command = [python, "-m", "bench.race.one", engine, json.dumps(asdict(work)), str(result)]
        roots = [str(_HERE.parents[1] / "src"), str(_HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, roots)), "FLWR_TELEMETRY_ENABLED": "0"}
        start = time.time()
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                return f"not finished within {limit:.0f} s"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
                    process.wait()
        if not result.exists():
            return (log.read_text().strip().splitlines() or ["no message"])[-1][:200]
        measured = json.loads(result.read_text())
    return {**measured, "start": measured["ready"] - start}


def lines(engine: str) -> int:
    """Count the lines of code that a user writes: the engine's file and, but for fedotp, the model."""
    code = (_HERE / f"{engine}.py").read_text()
    count = _lines(code) - sum(_lines(code, name) for name in _NOT_USERS.get(engine, ()))
    if engine == "flower":
        count += _lines((_HERE / "loop.py").read_text(), "train")
    return count if engine == "ours" else count + _lines((_HERE / "work.py").read_text(), "PromptModel")


def _lines(code: str, name: str | None = None) -> int:
    tree: ast.AST = ast.parse(code)
    if name:
        tree = next(node for node in ast.walk(tree) if getattr(node, "name", None) == name)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return sum(bool(line.strip()) for line in ast.unparse(tree).splitlines())


def race(engines: list[str], todo: dict[str, Work], limit: float, keep: Callable[[dict[str, Any]], object]) -> bool:
    """Print a table for each work, and `keep` the figures so far; return True if all prompts are equal."""
    figures: dict[str, Any] = {f"lines of code: {TITLES[engine]}": lines(engine) for engine in engines}
    print(*(f"{name}: {count}" for name, count in figures.items()), sep="\n")
    equal = True
    for title, work in todo.items():
        if work.backbone == "mini" and work.way == "cached":
            work.read(torch.arange(1))  # so that no engine encodes the images
        figures[f"{title}: load average before"] = os.getloadavg()[0]
        print(f"\n{title:<40}" + "".join(f"{head:>14}" for head in _COLUMNS))
        found = {engine: run(engine, work, limit) for engine in engines}
        measured = {engine: each for engine, each in found.items() if isinstance(each, dict)}
        warm, cpu = (
            {engine: statistics.median(each[clock][1:]) for engine, each in measured.items()}
            for clock in ("seconds", "processor")
        )
        for engine, each in found.items():
            name = f"{title}: {TITLES[engine]}"
            if isinstance(each, str):
                print(f"{TITLES[engine]:<40}  {each}")
                figures[name] = each
                continue
            reference = measured.get("ours", each)
            apart = max(abs(a - b) for a, b in zip(each["prompt"], reference["prompt"], strict=True))
            equal &= apart <= TOLERANCE
            ratios = [of[engine] / of["ours"] if "ours" in of else float("nan") for of in (warm, cpu)]
            numbers = (each["start"], each["seconds"][0], warm[engine], ratios[0], cpu[engine], ratios[1], each["MiB"])
            note = "" if apart <= TOLERANCE else f"  DIFFERENT PROMPTS, by {apart:.1e}"
            print(f"{TITLES[engine]:<40}" + "".join(f"{number:>14.4g}" for number in numbers) + note)
            figures[name] = {
                **dict(zip(_COLUMNS, numbers, strict=True)),
                "rounds, s": each["seconds"],
                f"largest difference from fedotp's prompts after {COMPARED} rounds": apart,
                f"largest change of prompts in {COMPARED} rounds": each["moved"],
                **each["versions"],
            }
        keep(figures)
    return equal


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.race", description=__doc__, formatter_class=form)
    parser.add_argument("engines", nargs="*", help=f"engines beside fedotp: {', '.join(TITLES)}; default all")
    parser.add_argument("--part", choices=("ways", "growth", "vit"), help="part of the table; default ways and growth")
    parser.add_argument("--only", default="", help="only works whose title contains this")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a run may take (default 600)")
    parser.add_argument("--save", action="store_true", help="record the figures under bench/results/")
    args = parser.parse_args()
    if unknown := [name for name in args.engines if name not in TITLES]:
        parser.error(f"unknown engine {unknown[0]!r}; must be one of {', '.join(TITLES)}")
    if args.save and args.engines:
        parser.error("--save records all engines; name none")
    if args.part == "vit" and not torch.cuda.is_available():
        parser.error("--part vit needs a GPU")
    engines = [name for name in TITLES if name in args.engines or not args.engines or name == "ours"]
    parts = [args.part] if args.part else ["ways", "growth"]
    todo = dict(one for part in parts for one in works(part) if args.only in one[0])
    keep = partial(save, "race", program="bench.race") if args.save else len
    sys.exit(0 if race(engines, todo, args.limit, keep) else 1)


main()
