"""Links to files of the repository, rewritten for the site."""

import os
import re
import tomllib
from pathlib import PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from pages import FROM_ROOT, ROOT

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_HATCH = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
_HOME: str = _HATCH["metadata"]["hooks"]["custom"]["home"]
_SOURCE_OF = {page: name for name, page in FROM_ROOT.items()}


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to files of the repository by links to pages, or to the repository's home."""
    at = page.file.src_uri
    if at.startswith("api/"):
        return markdown
    parts = _FENCE.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _relinked(link, at, files), text) for text in parts[::2]]
    return "".join(parts)


def _relinked(link: re.Match[str], at: str, files: Files) -> str:
    image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    if not target or ":" in target:
        return link[0]
    source = PurePosixPath(_SOURCE_OF.get(at, f"docs/{at}"))
    path = os.path.normpath(source.parent / target)  # in the repository
    page = FROM_ROOT.get(path) or path.removeprefix("docs/")
    if files.get_file_from_path(page) is not None and (path in FROM_ROOT or path.startswith("docs/")):
        return f"{image}[{text}]({os.path.relpath(page, PurePosixPath(at).parent)}{anchor})"
    if not (ROOT / path).exists():
        return link[0]  # mkdocs warns
    if _HOME:
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{image}[{text}]({_HOME}/{kind}/HEAD/{path}{anchor})"
    return text
