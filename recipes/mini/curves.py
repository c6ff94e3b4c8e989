"""The training curves of the kept logs.

python -m recipes.mini.curves --logs recipes/mini/logs --out recipes/mini/curves.svg
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

PANELS = (  # stage, title, (key, label) of the lines
    ("student", "student: cosine to the teacher", (("pooled", "class token"), ("patches", "patches"))),
    (
        "student",
        "student: cross-entropy",
        (("soft", "teacher's choice"), ("hard", "labels"), ("hard_patches", "patches")),
    ),
    ("text", "text tower: cosine to its targets", (("cosine", "worded"), ("cosine_soft", "behind random vectors"))),
    ("text", "soft-prompt episodes: loss", (("episodes_young", "first tenth of life"), ("episodes_old", "last tenth"))),
)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    runs = [[json.loads(line) for line in path.open()] for path in sorted(args.logs.glob("*.jsonl"))]
    plt.rcParams["svg.hashsalt"] = "mini"
    figure, axes = plt.subplots(1, len(PANELS), figsize=(4 * len(PANELS), 3))
    for axis, (stage, title, lines) in zip(axes, PANELS, strict=True):
        draw(axis, [[row for row in run if row["stage"] == stage] for run in runs], lines)
        axis.set(title=title, xlabel="seconds on one H200")
        axis.legend(fontsize=8, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(args.out, metadata={"Date": None} if args.out.suffix == ".svg" else None)


def draw(axis: Axes, runs: list[list[dict[str, Any]]], lines: tuple[tuple[str, str], ...]) -> None:
    """Runs of one stage one after the other, a dotted line where a run was taken up again."""
    for number, (key, label) in enumerate(lines):
        start, seconds, values = 0.0, [], []
        for run in filter(None, runs):
            shown = [row for row in run if row[key] > 0]  # episodes begin after a tenth of the time
            seconds += [start + row["seconds"] for row in shown]
            values += [row[key] for row in shown]
            start += run[-1]["seconds"]
            axis.axvline(start, color="0.8", linestyle=":", linewidth=0.8)
        axis.plot(seconds, values, color=f"C{number}", label=label)


if __name__ == "__main__":
    main()
