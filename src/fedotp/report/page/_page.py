"""The report page: assets, data and plotting library in one file without network access."""

import html
import json
import math
import re
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import fedotp
from fedotp._files import write_atomically
from fedotp._web import digest_source
from fedotp.errors import FedotpError
from fedotp.federation import METRICS
from fedotp.report.figure import COLOURS
from fedotp.report.page._comparison import compare, differing_settings, name_runs
from fedotp.report.page._gather import gather
from fedotp.report.page._panels import gather_privacy, gather_views
from fedotp.runs.directory import RunDirectory

_SCRIPTS = (
    *("dom", "merge", "charts", "overview", "sites", "accuracy", "views", "clients", "classes", "limits"),
    *("costs", "privacy", "analysis", "heatmaps", "page"),
)
_MARK = '<meta name="generator" content="fedotp report">'
_MARKED_WITHIN = 1000  # characters
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

Analysed = dict[str, Any] | str | None
"""The result of `Analysis.as_dict`; a text that explains why there is none; or None if none was requested."""


def make_page(
    runs: Sequence[RunDirectory], analyses: Sequence[Analysed] | None = None, *, against: str | None = None
) -> str:
    """Make an HTML page about `runs`, complete or not, from their directories.

    Args:
        runs: at least one.
        analyses: for each run the analysis of its prompts and plans.
        against: the baseline, as named in the table; default: FedOTP, else the first run's method.
    """
    analyses = analyses or [None] * len(runs)
    named = name_runs(runs)
    data = {
        "fedotp": fedotp.__version__,
        "colours": COLOURS,
        "metrics": [{"key": m.key, "heading": m.heading, "share": m.is_share} for m in METRICS.values()],
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "runs": [
            {**_of(run, analysis), "title": name.title, "label": name.label, "group": name.group, "colour": name.colour}
            for run, name, analysis in zip(runs, named, analyses, strict=True)
        ],
        "comparison": compare(runs, named, against) if len(runs) > 1 else None,
        "differences": differing_settings(runs),
    }
    title = named[0].title if len(runs) == 1 else f"{len(runs)} runs"
    return _fill(title=f"{title} on {runs[0].manifest['data']['name']}", data=data)


def _of(run: RunDirectory, analysis: Analysed) -> dict[str, Any]:
    with run.reading():
        return {**gather(run), "analysis": analysis, "views": gather_views(run), "privacy": gather_privacy(run)}


def write_page(
    runs: Sequence[RunDirectory],
    path: str | Path,
    analyses: Sequence[Analysed] | None = None,
    *,
    against: str | None = None,
) -> Path:
    """Write the page of `make_page` to `path`, which must not be another kind of file."""
    path = Path(path)
    if path.is_dir() or (path.exists() and not is_page(path)):
        raise FedotpError(f"{path} exists and is not a report; choose another --out")
    write_atomically(path, make_page(runs, analyses, against=against))
    return path


def is_page(path: Path) -> bool:
    """True if the file was written by `write_page`."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _MARK in file.read(_MARKED_WITHIN)
    except OSError:
        return False


def _fill(title: str, data: dict[str, Any]) -> str:
    assets = files("fedotp.report.page") / "assets"
    library = (files("fedotp.report.page") / "vendor" / "echarts.min.js").read_text(encoding="utf-8")
    parts = [(assets / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    script = "(() => {\n'use strict';\n" + "\n".join(parts) + "})();\n"
    values = {
        "mark": _MARK,
        "policy": (  # only these scripts, embedded images and no connections
            f"default-src 'none'; script-src {' '.join(map(digest_source, (library, script)))}; "
            "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
        "title": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(),
        "style": (assets / "page.css").read_text(encoding="utf-8"),
        # ASCII that is safe inside HTML
        "data": json.dumps(_finite(data), separators=(",", ":"), allow_nan=False).translate(_ESCAPES),
        "library": library,
        "script": script,
    }
    template = (assets / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)  # once: data are not replaced again


def _finite(value: Any) -> Any:
    """Replace nan and infinity, which JSON does not support, with None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
