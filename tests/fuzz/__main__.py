"""`python -m fuzz`: read thousands of damaged files and messages; exit status 1 if there are findings."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzz.campaign import Tally, Worker, run
from fuzz.readers import all_readers


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="in all, divided among the readers")
    parser.add_argument("--case", type=int, help="only the case with this number")
    parser.add_argument("--seed", type=int, default=0, help="other cases for another seed")
    parser.add_argument("--reader", action="append", default=[], help="only this one; may be given several times")
    parser.add_argument("--keep", type=Path, help="folder for the inputs of findings")
    options = parser.parse_args()
    readers = [reader for reader in all_readers() if not options.reader or reader.name in options.reader]
    if not readers:
        parser.error(f"readers are {', '.join(reader.name for reader in all_readers())}")
    cases = options.cases if options.case is None else len(readers)
    tallies: dict[str, Tally] = {}
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as scratch,
        Worker(Path(scratch, "seeds"), Path(scratch, "worker"), options.seed) as worker,
    ):
        for name, tally in run(readers, worker, cases=cases, first=options.case or 0, keep=options.keep):
            if name not in tallies:
                print(f"{name} ...", flush=True)
            tallies[name] = tally
            for case, why in tally.new_findings():
                shown = ascii(why.strip().partition("\n")[0][:300])
                print(f"  finding: --seed {options.seed} --reader {name} --case {case}: {shown}", flush=True)
    width = max(map(len, tallies))
    print(f"{'reader':<{width}}     cases      read   refused  findings")
    for name, tally in tallies.items():
        counts = (tally.cases, tally.read, tally.refused, len(tally.findings))
        print(f"{name:<{width}}" + "".join(f"{count:>10}" for count in counts))
    n_cases, n_findings = (sum(n) for n in zip(*((t.cases, len(t.findings)) for t in tallies.values()), strict=True))
    print(f"\n{n_cases} cases, {n_findings} findings, {time.monotonic() - start:.0f} s, seed {options.seed}")
    return 1 if n_findings else 0


if __name__ == "__main__":
    sys.exit(main())
