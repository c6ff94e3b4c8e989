"""Audit fifty honest federations, and some whose clip was broken on purpose.

    python -m recipes.privacy.audit                  # into docs/results/audit.csv; some minutes of one core
    python -m recipes.privacy.audit --device cuda

Only what comes with fedotp is needed: the demo, with few images. Each line is one run with canaries: the accountant's
epsilon, the lower bound, and whether it is below. Lines that are in the file already are not made again.
"""

import argparse
import csv
import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from fedotp.audit import audit
from fedotp.config import load_config
from fedotp.privacy import _clipping, _mechanism

OUT = Path("docs/results/audit.csv")
CANARIES = 1000
NOISE = {"example": (1.0, 2.0, 4.0), "site": (1.0, 2.0, 5.0)}
METHODS = ("promptfl", "fedotp")
SMALL = ("federation.rounds=2", "federation.batch_size=8", "partition.shots=8", "evaluation.every=0")


@dataclass(frozen=True)
class Trial:
    """One federation; `clip` says whether it works."""

    unit: str
    method: str
    noise: float
    seed: int
    clip: str


def trials(n: int) -> Iterator[Trial]:
    """`n` honest ones in turn, and a fifth as many without a clip, where the noise is such that this can be seen."""
    kinds = [(unit, method, noise) for unit in NOISE for method in METHODS for noise in NOISE[unit]]
    for i, (unit, method, noise) in zip(range(n), itertools.cycle(kinds), strict=False):
        yield Trial(unit, method, noise, i, "works")
    for i in range(n // 5):
        unit = tuple(NOISE)[i % 2]
        yield Trial(unit, METHODS[i // 2 % 2], NOISE[unit][-1], 100 + i, "broken")


def run(trial: Trial, canaries: int, device: str) -> dict[str, Any]:
    """A line of the file."""
    changes = [f"privacy.unit={trial.unit}", f"privacy.noise={trial.noise}", f"method.name={trial.method}"]
    config = load_config("demo").override([*SMALL, *changes, f"seed={trial.seed}", f"compute.device={device}"])
    start = time.perf_counter()
    with ExitStack() as stack:
        if trial.clip == "broken":
            _break_the_clip(stack)
        found = audit(config, canaries=canaries)
    bound = found.bound
    return {
        **asdict(trial),
        "upper": found.upper,
        "lower": round(bound.epsilon, 4),
        "below": not found.is_broken,
        **{key: getattr(bound, key) for key in ("canaries", "included", "guesses", "right", "delta", "confidence")},
        "seconds": round(time.perf_counter() - start, 1),
    }


def _break_the_clip(stack: ExitStack) -> None:
    """Sums of gradients and of updates in which everything is as long as it likes."""
    whole = _mechanism.clipped_sum
    stack.enter_context(mock.patch.object(_clipping, "_scale", lambda length, _: torch.ones_like(length)))
    stack.enter_context(
        mock.patch.object(_mechanism, "clipped_sum", lambda updates, start, _: whole(updates, start, 1e9))
    )


def table(path: Path) -> str:
    """What docs/audit.md shows of the file."""
    kinds: dict[tuple[bool, str, float], list[dict[str, str]]] = {}
    for line in _lines(path):
        kinds.setdefault((line["clip"] == "broken", line["unit"], float(line["noise"])), []).append(line)
    rows = [
        "| unit | noise | clip | runs | epsilon, at most | epsilon, at least | below |",
        "|---|---|---|---|---|---|---|",
    ]
    for (is_broken, unit, noise), lines in sorted(kinds.items()):
        lower, upper = (sorted(float(line[key]) for line in lines) for key in ("lower", "upper"))
        below = sum(line["below"] == "True" for line in lines)
        found = f"{lower[0]:.2f} to {lower[-1]:.2f}"
        clip = "broken" if is_broken else "works"
        rows.append(f"| {unit} | {noise:g} | {clip} | {len(lines)} | {upper[-1]:.2f} | {found} | {below} |")
    return "\n".join(rows)


def _lines(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def main() -> None:
    """Make what is not in the file yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--canaries", type=int, default=CANARIES)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    names = [field.name for field in fields(Trial)]
    done = {tuple(line[name] for name in names) for line in _lines(options.out)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for trial in trials(options.runs):
        if tuple(str(value) for value in asdict(trial).values()) in done:
            continue
        line = run(trial, options.canaries, options.device)
        is_new = not options.out.exists()
        with options.out.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(line), lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(line)
        print(" ".join(f"{key}={value}" for key, value in line.items()), flush=True)
    print(table(options.out))


if __name__ == "__main__":
    main()
