"""Pages of the site that are not files of docs/: README, changelog, contributing, security, and the API reference."""

import ast
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"README.md": "index.md", **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")}}
"""Files outside docs/, and their pages."""

API = (
    "fedotp",
    "fedotp.classifier",
    "fedotp.clip",
    "fedotp.config",
    "fedotp.data",
    "fedotp.data.partition",
    "fedotp.data.store",
    "fedotp.errors",
    "fedotp.federation",
    "fedotp.matching",
    "fedotp.methods",
    "fedotp.ot",
    "fedotp.prompts",
    "fedotp.report",
    "fedotp.runs.directory",
    "fedotp.runs.leaving",
    "fedotp.runs.many",
    "fedotp.runs.one",
    "fedotp.runs.tables",
    "fedotp.runs.watch",
    "fedotp.serve",
)
"""Modules with a page of their public names."""

_MORE = "More"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the API, and pages that the navigation does not list, to the navigation."""
    nav: list[Any] = config["nav"]
    reference = next(part["Reference"] for part in nav if "Reference" in part)
    reference.append({"API": ["api/index.md", *({name: _page_of(name)} for name in API)]})
    named = set(_pages_in(nav))
    others = [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in named]
    if others:
        nav.append({_MORE: others})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    made = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in FROM_ROOT.items()}
    made["index.md"] = f"---\nhide: [navigation]\n---\n\n{made['index.md']}"  # a front page without a sidebar
    made |= {_page_of(name): f"# `{name}`\n\n::: {name}\n{_members(name)}" for name in API}
    made["api/index.md"] = _api_index()
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def _api_index() -> str:
    rows = "\n".join(f"| [`{name}`]({name}.md) | {_first_line(name)} |" for name in API)
    return (
        "# The API\n\nPublic names of every package, with the shapes of arguments and results; the letters are "
        f"[the same everywhere](../architecture.md#shapes).\n\n| | |\n|---|---|\n{rows}\n"
    )


def _first_line(module: str) -> str:
    """Return the first line of its docstring, without importing it."""
    return (ast.get_docstring(_tree(module)) or "").partition("\n")[0]


def _members(module: str) -> str:
    """Return the option that lists the public names of a package: those that `__init__.py` imports `as` themselves.

    Files need no list, and packages inside it have their own pages.
    """
    imports = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.ImportFrom) and node.module != module]
    names = [alias.name for node in imports for alias in node.names if alias.name == alias.asname]
    return f"    options:\n      members: [{', '.join(names)}]\n" if names else ""


def _tree(module: str) -> ast.Module:
    path = ROOT / "src" / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text(encoding="utf-8"))


def _page_of(module: str) -> str:
    return f"api/{module}.md"


def _pages_in(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _pages_in(part)]
