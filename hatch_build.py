"""What the wheel says of itself that follows from one setting, the address of the repository (`tool.fedotp.home`).

A package index shows the README alone, without the files beside it: there its links and images need whole addresses.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PAPER = "https://arxiv.org/abs/2403.00041"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class CustomMetadataHook(MetadataHookInterface):
    """Adds `readme` and `urls` to the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml declares as dynamic."""
        home: str = self.config["home"].rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_for_index(text, home)}
        metadata["urls"] = urls(home)


def urls(home: str) -> dict[str, str]:
    """Where things are: of the repository as far as there is one."""
    if not home:
        return {"Paper": _PAPER}
    return {
        "Homepage": home,
        "Documentation": f"{home}/tree/HEAD/docs",
        "Changelog": f"{home}/blob/HEAD/CHANGELOG.md",
        "Security": f"{home}/blob/HEAD/SECURITY.md",
        "Paper": _PAPER,
    }


def readme_for_index(text: str, home: str) -> str:
    """The README with whole addresses; without a home links become their words, and images go."""

    def whole(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        if not home:
            return "" if image else words
        return f"{image}[{words}]({home}/{'raw' if image else 'blob'}/HEAD/{target})"

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(whole, part) for part in parts[::2]]
    return "".join(parts)
