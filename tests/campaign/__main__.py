"""A campaign against real processes: `make campaign`, or `python -m campaign --minutes 30` in tests/.

Federations of real processes, secure or not, are killed, stalled, put to sleep, starved of processors, given wrong
clocks and fed garbage for as long as asked. Every run must end as an undisturbed one does, to
the last bit, and no site may be deaf at the end; anything else is a finding, with its logs kept. The outcome is printed
and, with --save, written down.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

from bench._record import commit, machine

from campaign.disturb import shuffled
from campaign.episodes import KINDS, Episode, Lane, federation, reference
from runs.toy_run import make_inputs


def main() -> None:
    """Run the campaign; exit status 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="for how long new runs are begun")
    parser.add_argument("--lanes", type=int, default=2, help="federations side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=300.0, help="seconds of the longest stall or sleep")
    parser.add_argument("--keep", type=Path, help="where logs are kept; a temporary folder if not given")
    parser.add_argument("--save", type=Path, help="write the outcome to this file")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inputs").mkdir()
    inputs = make_inputs(folder / "inputs")
    start = time.monotonic()
    expected = reference(inputs, folder / "reference")
    end = time.monotonic() + 60 * given.minutes
    print(f"{time.monotonic() - start:6.0f} s  undisturbed runs are there; logs in {folder}", flush=True)
    episodes: list[Episode] = []

    def work(name: str, first: int) -> None:
        rng = random.Random(f"{given.seed} {name}")
        lane = Lane(rng, given.longest, cycle(KINDS[first:] + KINDS[:first]), shuffled(rng))
        number = 0
        while time.monotonic() < end:
            number += 1
            episode = federation(inputs, folder / f"{name}-{number}", expected, lane)
            episodes.append(episode)
            print(f"{time.monotonic() - start:6.0f} s  {name}-{number}: {episode.line}", flush=True)

    lanes = [threading.Thread(target=work, args=(f"federation-{i}", i % len(KINDS))) for i in range(given.lanes)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    outcome = summary(episodes, time.monotonic() - start)
    print(json.dumps(outcome, indent=2))
    if given.save:
        command = " ".join(["python -m campaign", *sys.argv[1:]])
        record = {"command": command, "commit": commit(), "machine": machine(), **outcome}
        given.save.write_text(json.dumps(record, indent=2) + "\n")
    sys.exit(1 if outcome["findings"] else 0)


def summary(episodes: list[Episode], seconds: float) -> dict[str, object]:
    """What happened, in numbers."""
    done = Counter(name for episode in episodes for name, _ in episode.disturbances)
    asleep = [length for episode in episodes for _, length in episode.disturbances if length]
    return {
        "minutes": round(seconds / 60, 1),
        "runs": dict(Counter(episode.kind for episode in episodes)),
        "ended_bit_equal": sum(not episode.findings for episode in episodes),
        "disturbances": dict(sorted(done.items())),
        "longest_stall_or_sleep_seconds": round(max(asleep, default=0.0)),
        "findings": [f"{episode.name}: {finding}" for episode in episodes for finding in episode.findings],
    }


if __name__ == "__main__":
    main()
