"""What there is of a client in a run's directory: prompts, rounds, tests, predictions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedotp.federation import load_rows
from fedotp.runs._directory import RunDirectory, reading

_BY_NUMBER = ("sampled", "answered", "clients")  # in the lines of metrics.jsonl
_OF_ALL = (("global", "global"), ("novel", "global"))  # views of no client: the number 0 in them is not one's


def traces(run: RunDirectory, sites: Sequence[str]) -> list[str]:
    """Where anything of `sites` is in a complete run, in words; nothing if they never had a part in it."""
    with reading(run):
        return list(_found(run, sites))


def rounds_of_site(run: RunDirectory, site: str) -> list[int]:
    """The rounds in which a client's update counted, in ascending order."""
    with reading(run):
        number = run.manifest["clients"].index(site)
        return [record["round"] for record in run.metrics("round") if number in record["answered"]]


def _found(run: RunDirectory, sites: Sequence[str]) -> Iterator[str]:
    numbers = {run.manifest["clients"].index(site) for site in sites if site in run.manifest["clients"]}
    present = [site for site in sites if site not in run.config.federation.without]
    if present:
        yield f"config.toml: {', '.join(present)} may take part"
    for line, record in enumerate(run.metrics(), 1):
        if (record.get("view"), record.get("model")) in _OF_ALL:
            continue
        told = {*record.get("faults", {}), *record.get("shortened", {})}
        if told & {*sites} or any(numbers.intersection(record.get(key, ())) for key in _BY_NUMBER):
            yield f"metrics.jsonl, line {line}: {record['kind']} of round {record['round']}"
    clients, _ = load_rows(run.checkpoint, run.kept)
    if numbers.intersection(clients.tolist()):
        yield "state: a private prompt"
    if run.has_predictions and numbers.intersection(run.predictions().client.tolist()):
        yield "predictions.npz"
    if {*_named(run.summary)} & {*sites}:
        yield "summary.json"
    for site in sites:
        if (run.path / "joined" / site).exists():
            yield f"joined/{site}"


def _named(summary: Mapping[str, Any]) -> Iterator[str]:
    """The clients that a summary speaks of."""
    for told in (summary, summary.get("joined", {})):
        yield from (client["name"] for client in told.get("clients", ()))
    yield from summary.get("privacy", {}).get("clients", ())
    for key in ("malicious", "faults", "refused", "shortened", "weights", "capped"):
        yield from summary.get(key, ())
