"""Run benchmarks and record what they measured.

python -m bench                 every benchmark this machine can run
python -m bench ot text         some of them
python -m bench ot --save       write bench/results/ot-<cpu or gpu>.json: figures, command, commit, machine
"""

import argparse
import importlib
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line has it; before torch is imported

from bench._record import save

NAMES = (
    "ot",
    "text",
    "fused",
    "step",
    "growth",
    "precision",
    "encoding",
    "experiment",
    "federation",
    "together",
    "threads",
    "neighbours",
    "gpu",
    "space",
    "flower",
    "status",
    "report",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(NAMES)}; default all")
    parser.add_argument("--save", action="store_true", help="record the figures under bench/results/")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    for name in args.names or NAMES:
        module = importlib.import_module(f"bench.{name}")
        if reason := module.cannot_run():
            print(f"{name}: skipped, {reason}", file=sys.stderr)
            continue
        print(f"== {name}: {(module.__doc__ or '').splitlines()[0]}")
        figures = module.run()
        for key, value in figures.items():
            print(f"{key:<66} {value:>12.4g}")
        if args.save:
            print(f"saved {save(name, figures)}")


main()
