"""The paper's tables and figures by name, declared in `entries.toml`."""

from collections.abc import Iterator
from typing import Any

from fedotp._values import packaged
from fedotp.errors import FedotpError
from fedotp.paper._entry import WHOLE, Entry, Part, plain

_FACTS = packaged("paper", "entries.toml")


def _parts(facts: dict[str, Any]) -> Iterator[Part]:
    """Yield the parts of an entry, each once for every number of shots or every alpha."""
    for dataset, preset, *changes in facts["parts"]:
        if facts.get("by_domain"):
            cells = {domain: f"accuracy_{domain.lower()}" for domain in _FACTS["domains"][dataset]}
            yield Part(dataset, preset, cells={**cells, "Avg.": "accuracy"})
        for shots in facts.get("shots", []):
            setting = f"{shots} shot{'' if shots == 1 else 's'}" if len(facts["shots"]) > 1 else ""
            yield Part(dataset, preset, (f"partition.shots={shots}",), {setting: "accuracy"})
        for alpha in facts.get("alphas", []):
            change = () if alpha == "0.3" else (f"partition.alpha={alpha}",)  # 0.3 is the preset's own
            yield Part(dataset, preset, change, {f"alpha {alpha}": "accuracy"})
        if not facts.keys() & {"by_domain", "shots", "alphas"}:
            yield Part(dataset, preset, tuple(changes), WHOLE)


def _entry(name: str, facts: dict[str, Any]) -> Entry:
    lists = {
        "parts": tuple(_parts(facts)),
        "methods": {row: spec for group in facts["methods"] for row, spec in _FACTS["rows"][group].items()},
        "differs": tuple(note for words in facts["differs"] for note in _FACTS["notes"].get(words, [words])),
    }
    return Entry(name, **{key: facts[key] for key in facts.keys() - {"by_domain", "shots", "alphas"}} | lists)


ENTRIES = {name: _entry(name, facts) for name, facts in _FACTS["entries"].items()}


def entry_named(name: str) -> Entry:
    """Find an entry by name in any spelling: "Table A2" is tableA2."""
    found = next((entry for entry in ENTRIES.values() if plain(entry.name) == plain(name)), None)
    if found is None:
        raise FedotpError(f"unknown entry {name!r}; must be one of {', '.join(ENTRIES)}")
    return found
