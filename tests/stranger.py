"""A method in a file outside fedotp, and packages that bring one."""

import os
import sys
from pathlib import Path

from fedotp import _imports
from fedotp.data import DATASETS, _registry
from fedotp.data.partition import PARTITIONS, _settings
from fedotp.methods import METHODS

NAME = "moored"
TITLE = "Moored"


def write_method(folder: Path, name: str = NAME) -> Path:
    """`anchored.py` under another name, in a file that nothing imports by itself."""
    text = (Path(__file__).parent / "anchored.py").read_text()
    file = folder / f"{name}.py"
    file.write_text(text.replace('"anchored"', f'"{name}"').replace("Anchored", name.title()))
    return file


def install(folder: Path, name: str, package: str, value: str, group: str = "fedotp.methods") -> None:
    """What an installer would leave in `folder`, which is to be on the path: an entry point of `group`."""
    facts = folder / f"{package.replace('-', '_')}-1.5.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")


def forget() -> None:
    """As if this were a new process: nothing is imported by name any more."""
    os.environ.pop(_imports.VARIABLE, None)
    for module in _imports._digests:
        sys.modules.pop(module)
    for known in (_imports._loaded, _imports._digests, PARTITIONS, _settings._brought, _registry._brought):
        known.clear()
    for name in [name for name in METHODS if name.startswith(NAME)]:
        del METHODS[name]
    for name in ("scans", "own-scans"):
        DATASETS.pop(name, None)
