"""The process that reads: one order a line comes in, one answer a line goes out. `fuzz.campaign` watches over it.

{"warm": READER}                        make the valid files, if they are not there, and read them
{"reader": READER, "case": N}           mutate and read
{"reader": READER, "folder": PATH}      read a folder as it lies there
"""

import argparse
import faulthandler
import importlib
import json
import os
import random
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

from fedotp.errors import FedotpError
from fuzz.guard import Guard, limit_process
from fuzz.mutations import mutate
from fuzz.reader import Reader, inputs_of

CASE = "case"  # the folder of the case at hand, below the worker's own
_LAST_LINES = 12
_TRIES = 20  # a mutation may change nothing


def make_case(reader: Reader, seed_folder: Path, folder: Path, key: str) -> None:
    """The valid files of `reader` in `folder`, one of them mutated; the same for the same `key`."""
    rng = random.Random(key)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(seed_folder, folder, symlinks=True)
    path = rng.choice(reader.mutable(folder))
    what = rng.random()
    if reader.misplaced and what < 0.03:
        _misplace(path, folder, rng.choice(reader.misplaced))
        return
    valid = path.read_bytes()
    changed = (mutate(valid, rng) for _ in range(_TRIES))
    path.write_bytes(next((content for content in changed if content != valid), b""))
    if reader.seal is not None and what < 0.7:
        reader.seal(folder)


def _misplace(path: Path, folder: Path, kind: str) -> None:
    """Put something else in the place of a file: a pipe without a writer, a link to itself, to an endless device.

    A link to a file outside may be read, but what it leads to may not be written.
    """
    outside = folder.parent / "outside"
    shutil.move(path, outside)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "nothing":
        path.symlink_to({"loop": path.name, "nowhere": "intruder", "endless": "/dev/zero", "outside": outside}[kind])


def read(reader: Reader, folder: Path, guard: Guard, inputs: Path) -> dict[str, Any]:
    """What comes of reading: "read", "refused" or "finding", and why."""
    outcome, why = "read", ""
    with guard.watching((folder, inputs)):
        try:
            reader.read(folder)
        except FedotpError as error:
            outcome, why = ("refused" if reader.may_refuse else "finding"), f"refused: {error}"
        except BaseException as error:  # Rust's panics are no Exception
            lines = traceback.format_exception(error)
            outcome, why = "finding", f"{type(error).__name__}: {error}\n{''.join(lines[-_LAST_LINES:])}"
    if guard.noted:
        outcome, why = "finding", "; ".join(guard.noted) + "\n" + why
    return {"outcome": outcome, "why": why[:20_000]}


def main() -> None:
    """Take orders until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", default="fuzz.readers", help="the module that has them")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    _silence(options.scratch)
    limit_process()
    elsewhere = options.scratch / "elsewhere"
    elsewhere.mkdir(parents=True, exist_ok=True)
    case = options.scratch / CASE
    guard = Guard(elsewhere)
    os.environ["TMPDIR"] = str(case)
    os.environ["FEDOTP_CACHE"] = str(case / "cache")
    readers = {reader.name: reader for reader in importlib.import_module(options.readers).all_readers()}
    (options.scratch / "inputs").unlink(missing_ok=True)
    (options.scratch / "inputs").symlink_to(options.seeds / "inputs")
    for line in sys.stdin:
        order = json.loads(line)
        reader = readers[order.get("reader") or order["warm"]]
        seed_folder = options.seeds / reader.name
        inputs = inputs_of(seed_folder)
        if "warm" in order:
            answer = _warm(reader, seed_folder, case)
        elif "folder" in order:
            shutil.rmtree(case, ignore_errors=True)
            shutil.copytree(order["folder"], case, symlinks=True)
            answer = read(reader, case, guard, inputs)
        else:
            make_case(reader, seed_folder, case, f"{options.seed}/{reader.name}/{order['case']}")
            answer = read(reader, case, guard, inputs)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _warm(reader: Reader, seed_folder: Path, folder: Path) -> dict[str, Any]:
    """Read the valid files, which must be valid: a reader that refuses everything proves nothing."""
    try:
        if not seed_folder.is_dir():
            seed_folder.mkdir(parents=True)
            reader.make(seed_folder)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(seed_folder, folder, symlinks=True)
        reader.read(folder)
    except BaseException:
        return {"outcome": "finding", "why": f"valid files are refused\n{traceback.format_exc()}"}
    return {"outcome": "read", "why": ""}


def _silence(scratch: Path) -> None:
    """What readers print, and what a crash leaves, goes to a file."""
    log = os.open(scratch / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()


if __name__ == "__main__":
    main()
