"""What a package index shows, and the commands of continuous integration."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HOME = "https://forge.example/someone/fedotp"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

pytest.importorskip("hatchling")
sys.path.insert(0, str(ROOT))
from hatch_build import readme_for_index  # noqa: E402

sys.path.pop(0)


def targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", text)


def test_links_and_images_of_the_readme_are_whole_addresses_on_the_index() -> None:
    shown = readme_for_index(README, HOME)
    assert len(targets(shown)) == len(targets(README))
    assert all(target.startswith("https://") for target in targets(shown))
    assert f"]({HOME}/raw/HEAD/docs/idea.svg)" in shown
    assert f"]({HOME}/blob/HEAD/docs/methods.md#yours)" in shown
    for path in re.findall(rf"{re.escape(HOME)}/(?:raw|blob)/HEAD/([^)#]+)", shown):
        assert (ROOT / path).exists(), path


def test_without_a_home_nothing_leads_nowhere() -> None:
    shown = readme_for_index(README, "")
    assert all(target.startswith("https://") for target in targets(shown))
    assert "![" not in shown
    assert "[methods](" not in shown
    assert "methods" in shown
    assert re.findall(r"```.*?```", shown, re.DOTALL) == re.findall(r"```.*?```", README, re.DOTALL)


def test_the_forge_runs_make_test_with_every_python_that_is_promised() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    promised = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.MULTILINE)
    assert jobs["linux"]["strategy"]["matrix"]["python"] == promised
    assert any(step.get("run") == ".ci/run" for step in jobs["linux"]["steps"])
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert any(step.get("run") == "make docs" for step in jobs["docs"]["steps"])
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", use) for use in used)  # the forge's own, pinned
