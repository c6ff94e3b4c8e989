"""A method in a file that is no part of fedotp, and packages that bring one."""

from pathlib import Path

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
