"""`python -m fuzz`: read thousands of damaged files and messages; exit status 1 if there are findings."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzz.campaign import Tally, Worker, run
from fuzz.reader import Reader
from fuzz.readers import all_readers


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="in all, divided among the readers")
    parser.add_argument("--case", type=int, help="only the case with this number")
    parser.add_argument("--folder", type=Path, help="instead of cases, a folder that --keep kept, as it is")
    parser.add_argument("--seed", type=int, default=0, help="other cases for another seed")
    parser.add_argument("--reader", action="append", default=[], help="only this one; may be given several times")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after about so long; 0: do all cases")
    parser.add_argument("--keep", type=Path, help="folder for the inputs of findings")
    parser.add_argument("--verbose", action="store_true", help="print the outcome of every case, and why")
    parser.add_argument("--list", action="store_true", help="print the readers' names")
    options = parser.parse_args()
    readers = [reader for reader in all_readers() if not options.reader or reader.name in options.reader]
    if options.list or not readers:
        print("\n".join(reader.name for reader in all_readers()))
        return 0 if options.list else 2
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as scratch,
        Worker(Path(scratch, "seeds"), Path(scratch, "worker"), options.seed) as worker,
    ):
        if options.folder is not None:
            print(*worker.ask(readers[0].name, folder=str(options.folder.resolve())), sep="\n")
            return 0
        one = options.case is not None
        tallies = _run(readers, worker, options, cases=len(readers) if one else options.cases)
    print(_table(tallies))
    n_cases, n_findings = (sum(n) for n in zip(*((t.cases, len(t.findings)) for t in tallies.values()), strict=True))
    print(f"\n{n_cases} cases, {n_findings} findings, {time.monotonic() - start:.0f} s, seed {options.seed}")
    return 1 if n_findings else 0


def _run(readers: list[Reader], worker: Worker, options: argparse.Namespace, *, cases: int) -> dict[str, Tally]:
    """All cases; a line for every reader and for every finding."""
    tallies: dict[str, Tally] = {}
    for reader, tally in run(
        readers, worker, cases=cases, first=options.case or 0, seconds=options.seconds, keep=options.keep
    ):
        if reader.name not in tallies:
            print(f"{reader.name} ...", flush=True)
        tallies[reader.name] = tally
        case, outcome, why = tally.last
        if outcome == "finding" or options.verbose:
            words = why if options.verbose else why.strip().partition("\n")[0][:300]
            shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in words)
            print(f"  {outcome}: --seed {options.seed} --reader {reader.name} --case {case}: {shown}", flush=True)
    return tallies


def _table(tallies: dict[str, Tally]) -> str:
    rows = [("reader", "cases", "read", "refused", "findings")]
    rows += [(name, *map(str, (t.cases, t.read, t.refused, len(t.findings)))) for name, t in tallies.items()]
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:<{width}}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
