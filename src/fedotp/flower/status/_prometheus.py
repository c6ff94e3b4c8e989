"""The state of a server or a site in Prometheus' text format, version 0.0.4."""

from collections.abc import Iterator, Mapping
from typing import Any

_OF_BOTH = (  # name, type, help, key of the value
    ("start_time_seconds", "gauge", "Start of the process, in seconds since 1970.", "started"),
    ("round", "gauge", "Last complete round; at a site, the round of the last order.", "round"),
    ("orders_total", "counter", "Orders: requests of the server to a site.", "orders"),
    ("privacy_epsilon", "gauge", "Epsilon that the run has spent.", "epsilon"),
    ("privacy_delta", "gauge", "Delta of epsilon.", "delta"),
    ("accuracy", "gauge", "Accuracy of the last evaluation; at a server, the mean of the sites.", "last_accuracy"),
    ("warnings_total", "counter", "Warnings and errors in the log.", "warned"),
)
_OF_ONE = {
    "server": (
        ("rounds", "gauge", "Rounds of the run.", "rounds"),
        ("round_seconds_total", "counter", "Duration of all rounds of this process.", "seconds"),
        ("rounds_done_total", "counter", "Rounds of this process.", "done"),
        ("last_round_seconds", "gauge", "Duration of the last round.", "last_seconds"),
        ("loss", "gauge", "Mean training loss of the last round.", "last_loss"),
        ("keys_refused_total", "counter", "Connections refused because of their key.", "keys_refused"),
    ),
    "site": (
        ("orders_refused_total", "counter", "Orders that this site has refused.", "orders_refused"),
        ("updates_total", "counter", "Updates that this site has sent.", "updates"),
        ("privacy_epsilon_of_all_runs", "gauge", "Epsilon that all runs have spent.", "epsilon_of_all"),
    ),
}
_OF_PEERS = {
    "server": (
        ("site_connected", "gauge", "1 if the site is connected.", "connected"),
        ("site_last_seen_timestamp_seconds", "gauge", "Last contact with the site, in seconds since 1970.", "seen"),
        ("site_training_images", "gauge", "Training images that the site has reported.", "images"),
        ("site_updates_accepted_total", "counter", "Accepted updates of the site.", "updates"),
        ("site_updates_refused_total", "counter", "Refused updates of the site.", "refused"),
        ("site_accuracy", "gauge", "Last accuracy that the site has reported.", "accuracy"),
    ),
    "site": (
        ("server_connected", "gauge", "1 if the server answers.", "connected"),
        ("server_last_seen_timestamp_seconds", "gauge", "Last answer of the server, in seconds since 1970.", "seen"),
    ),
}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


Samples = list[tuple[dict[str, str], float | None]]
"""Labels and values; None: unknown."""


def exposition(state: Mapping[str, Any]) -> str:
    """Write the facts of `Status.as_dict`."""
    role, last = state["role"], {f"last_{key}": state[key][-1][1] for key in ("accuracy", "loss") if state[key]}
    info = {"role": role, "version": state["version"], "name": state["name"], "run": state["run"] or ""}
    lines = [*_family("info", "gauge", "This process and its run; always 1.", [(info, 1)])]
    for name, kind, text, key in (*_OF_BOTH, *_OF_ONE[role]):
        lines += _family(name, kind, text, [({}, {**state, **last}.get(key))])
    for name, kind, text, key in _OF_PEERS[role]:
        label = name.partition("_")[0]  # site or server
        lines += _family(name, kind, text, [({label: peer["name"]}, peer[key]) for peer in state["peers"]])
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, text: str, samples: Samples) -> Iterator[str]:
    """Yield the lines of a metric; none if no value is known."""
    known = [(labels, value) for labels, value in samples if value is not None]
    if known:
        yield f"# HELP fedotp_{name} {text}"
        yield f"# TYPE fedotp_{name} {kind}"
    for labels, value in known:
        inside = ",".join(f'{key}="{label.translate(_ESCAPES)}"' for key, label in labels.items())
        yield f"fedotp_{name}{f'{{{inside}}}' if inside else ''} {float(value)!r}"
