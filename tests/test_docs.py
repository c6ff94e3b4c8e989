"""What the documentation shows works as shown."""

import doctest
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
import typer
from PIL import Image

import fedotp.cli
import fedotp.clip
import fedotp.paper
from fedotp.clip import CLIP, TINY
from fedotp.methods import METHODS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "module", ["fedotp.ot._solve", "fedotp.clip._model", "fedotp.prompts._encode", "fedotp.matching"]
)
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0


def blocks(page: str, kind: str = "python") -> list[str]:
    """Code on a page."""
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_parts_in_python_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, with a toy in place of the backbone that would be downloaded."""
    monkeypatch.setattr(fedotp.clip, "load", lambda name: CLIP.random(TINY))
    step, transport = (code for code in blocks("docs/python.md") if "\nscores =" in code or "\nresult =" in code)
    names = {"pixels": torch.randn(30, 3, 32, 32), "labels": torch.randint(0, 2, (10, 3)), "cost": torch.rand(4, 9, 2)}
    exec(step + transport, names)
    assert names["scores"].shape == (10, 3, 2)
    assert names["context"].grad.abs().sum() > 0
    assert names["result"].plan.shape == (4, 9, 2)


def test_a_run_in_ten_lines(
    small_box: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's run and the use of what was learned, on the embedded backbone, cut short."""
    monkeypatch.chdir(tmp_path)
    whole = fedotp.load_config
    few = ["federation.rounds=1", f"data.dataset={small_box}", "optimizer.lr=0.01"]
    monkeypatch.setattr(fedotp, "load_config", lambda name: whole(name).override(few), raising=False)
    Image.new("RGB", (64, 64), "gray").save("photo.jpg")
    (code,) = blocks("README.md")
    assert len(code.strip().splitlines()) <= 10
    exec(code, {})
    *lines, predicted = capsys.readouterr().out.splitlines()
    numbers = [[float(word) for word in line.split()] for line in lines]
    assert 0.5 < numbers[0][0] <= 1
    assert [line[0] for line in numbers[1:]] == [0, 1]  # an evaluation before the first round and after it
    ((best, probability), *_) = eval(predicted)[0]
    assert best in fedotp.load("runs/mass-0.7", client="client-3").classes
    assert 0 < probability <= 1


def test_a_method_in_the_documentation_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/methods.md: a method of the user."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "federation")
    from toy_federation import make_settings, simulator

    try:
        exec(blocks("docs/methods.md")[0], {"__name__": "docs"})
        federation = simulator("two-prompts", make_settings(optimizer={"lr": 0.1}))
    finally:
        METHODS.pop("two-prompts", None)
    losses = [federation.run_round().mean_loss for _ in range(3)]
    assert losses[-1] < losses[0]
    assert federation.private_names == {"private"}


def test_generated_files_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of docs/ and the shell's words, from docstrings, registries and help texts."""
    monkeypatch.syspath_prepend(ROOT / "website")
    import reference

    for name, write in reference.FILES.items():
        assert (ROOT / name).read_text(encoding="utf-8") == write(), f"{name} is outdated: make reference"


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_in(page: Path) -> list[str]:
    lines = [part for code in blocks(str(page), "sh") for line in code.splitlines() for part in line.split("; ")]
    return [line for line in lines if line.startswith("fedotp ")]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"], ids=lambda page: page.name)
def test_commands_and_links_are_right(page: Path) -> None:
    """Commands, options and settings exist; links lead to files."""
    for line in commands_in(page):
        check_command(line)
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert target.startswith(("https:", "http:")) or (page.parent / target).exists(), f"{target} is not there"


def test_every_command_is_shown() -> None:
    shown = [shlex.split(line, comments=True)[1:] for page in PAGES for line in commands_in(page)]
    groups: list[tuple[list[str], typer.core.TyperGroup]] = [([], typer.main.get_command(fedotp.cli.app))]
    for words, group in groups:
        for name, command in group.commands.items():
            whole = [*words, name]
            if hasattr(command, "commands"):
                groups.append((whole, command))
            else:
                assert any(line[: len(whole)] == whole for line in shown), f"no page shows fedotp {' '.join(whole)}"


def test_commands_to_deploy_are_spelt_right() -> None:
    """Those in deploy/, with the values of the examples in place of the variables."""
    files = {path.name: path.read_text() for path in sorted((ROOT / "deploy").iterdir()) if path.is_file()}
    examples = "\n".join(text for name, text in files.items() if name.endswith(".env.example"))
    values = dict(re.findall(r"^(\w+)=(.*)$", examples, re.MULTILINE))
    text = re.sub(r"^#.*$", "", "\n".join(files.values()), flags=re.MULTILINE).replace("\\\n", " ")
    lines = re.findall(r"\bfedotp (?:server|client) .*", text)
    assert len(lines) == 4  # a site's unit and container; a server that is new, and one that goes on
    for line in lines:
        check_command(re.sub(r"\$\{?(\w+)(:[-?][^}]*)?\}?", lambda name: values[name[1]], line))


def check_command(line: str) -> None:
    words = shlex.split(line.partition(" > ")[0], comments=True)[1:]
    command = typer.main.get_command(fedotp.cli.app)
    while "--import" in words:  # before the command or after it
        del words[words.index("--import") : words.index("--import") + 2]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    parsed = command.make_context(line, words).params
    changes = [*(parsed.get("changes") or []), *(f"{axis}".split(",")[0] for axis in parsed.get("grid") or [])]
    if "entry" in parsed:
        entry = fedotp.paper.entry_named(parsed["entry"])
        entry = entry.only(parsed["only"].split(",")) if parsed["only"] else entry
        entry.parts[0].config(changes)
    elif command.name in ("run", "compare", "sweep", "server") and not str(parsed["source"]).endswith(".toml"):
        fedotp.load_config(parsed["source"] or "demo").override(changes)


def test_the_quickstart_learns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    importlib.import_module("quickstart").main()
    sys.modules.pop("quickstart")
    shown = capsys.readouterr().out
    rounds = re.findall(r"^ +\d+ +([\d.]+) +([\d.]+) +(\d+)% +(\d+)%$", shown, re.MULTILINE)
    first, last = ([float(x) for x in rounds[i]] for i in (0, -1))
    assert all(after < before / 2 for before, after in zip(first[:2], last[:2], strict=True))
    assert min(last[2:]) > 95
    on_block = re.search(r"(\d+)% lies on the coloured block", shown)
    assert on_block is not None
    assert int(on_block[1]) > 40  # a plan that ignored the image would have 25 %


def test_tests_named_in_trust_and_security_exist() -> None:
    there = {
        str(path.relative_to(ROOT / "tests")): set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    pages = (ROOT / "docs/trust.md").read_text() + (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`([\w/]+\.py)?(?:::(test_\w+))?`", pages)
    file, found = "", [(where, test) for where, test in named if where or test]
    for where, test in found:
        file = where or file
        assert test in {"", *there[file]}, f"{file} has no {test}"
    assert len(found) > 50


def test_every_file_that_the_page_on_architecture_names_is_there() -> None:
    """Below src/fedotp or the repository; what a run's directory holds stands in a block of its own."""
    page = re.sub(r"```.*?```", "", (ROOT / "docs/architecture.md").read_text(), flags=re.DOTALL)
    named = {name for name in re.findall(r"`([\w./]+)`", page) if "/" in name or name.endswith((".py", ".txt", ".md"))}
    bases = (ROOT / "src/fedotp", ROOT)
    missing = [n for n in sorted(named) if not any((base / f).exists() for base in bases for f in (n, f"{n}.py"))]
    assert (len(named) > 50, missing) == (True, [])
