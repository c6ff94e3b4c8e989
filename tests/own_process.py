"""Python in a process of its own, which finds the modules that this one finds."""

import os
import subprocess
import sys
from pathlib import Path


def python(
    *words: object, cwd: Path | None = None, status: int = 0, **environment: str | None
) -> "subprocess.CompletedProcess[str]":
    """Run `python` with these words to its end, which must have this exit status; None takes a variable away."""
    paths = os.pathsep.join(path for path in sys.path if path)
    variables = {**os.environ, "PYTHONPATH": paths, **environment}
    known = {name: value for name, value in variables.items() if value is not None}
    call = [sys.executable, *map(str, words)]
    done = subprocess.run(call, cwd=cwd, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr[-2000:]
    return done
