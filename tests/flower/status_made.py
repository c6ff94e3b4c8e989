"""A status that is fed by hand, and served."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

from fedotp.flower._events import Event, record
from fedotp.flower.status import Status, StatusAddress, serve_status

EVIL = '<b>"north\\\n'
SITES = (EVIL, "south", "east")
SERVER = "fed.example.org:8000"


@contextmanager
def shown(status: Status, token: str = "") -> Iterator[str]:
    """The address of its page."""
    with serve_status(StatusAddress("127.0.0.1", 0, token), status) as url:
        yield url


def a_server(rounds: int = 3) -> Status:
    """Of three sites, of which one is away and one has sent something wrong."""
    return Status("server", SITES, {"south": 2e9, "unknown": 1.0})


def feed(*events: tuple[Event, dict[str, Any]]) -> None:
    for event, facts in events:
        assert event in get_args(Event)
        record(event, **facts)


def run_of_server(rounds: int = 3) -> None:
    """What a server records of its rounds."""
    feed(
        ("start", {"role": "server", "version": "1", "address": "0.0.0.0:8000", "sites": list(SITES)}),
        ("configuration", {"run": "abc", "digest": "d", "method": "fedotp", "rounds": 50}),
        ("key-refused", {"site": "stranger", "address": "192.0.2.1", "reason": "not registered"}),
        *((("ready", {"site": site, "images": 100 + i})) for i, site in enumerate(SITES)),
    )
    for number in range(1, rounds + 1):
        feed(
            ("order", {"kind": "train", "site": EVIL, "run": "abc", "round": number, "agreement": "a", "digest": "d"}),
            ("update-refused", {"site": "east", "run": "abc", "round": number, "reason": "not finite"}),
            (
                "round",
                {
                    "run": "abc",
                    "round": number,
                    "rounds": 50,
                    "answered": [EVIL, "south"],
                    "faults": {"east": "its update is refused: not finite"},
                    "seconds": 2.5,
                    "loss": 2 / number,
                    "digest": "d",
                    "epsilon": 0.1 * number,
                },
            ),
            (
                "evaluation",
                {"run": "abc", "round": number, "accuracy": 1 - 0.5 / number, "sites": {EVIL: 0.75, "south": 0.5}},
            ),
        )
    feed(("disconnected", {"site": "east"}), ("privacy-spent", {"unit": "site", "epsilon": 0.5, "delta": 1e-5}))


def orders_of_site() -> None:
    """What a site records of two orders, of which it refuses one."""
    order = {"run": "abc", "agreement": "a", "digest": "d"}
    feed(
        ("start", {"role": "site", "version": "1", "name": EVIL, "server": SERVER}),
        ("key-accepted", {"server": SERVER}),
        ("configuration", {"what": "site", "share": "loss", "policy": "d"}),
        ("order", {"kind": "train", "round": 7, **order}),
        ("update", {"run": "abc", "round": 7, "weight": 12, "digest": "d"}),
        ("privacy-spent", {"run": "abc", "unit": "example", "epsilon": 0.5, "total": 1.5, "delta": 1e-5}),
        ("order", {"kind": "train", "round": 8, **order}),
        ("order-refused", {"kind": "train", "round": 8, "run": "abc", "agreement": "a", "reason": "policy"}),
        ("evaluation", {"run": "abc", "round": 8, "accuracy": 0.75}),
        ("release", {"what": "classifier", "path": "classifier", "run": "abc"}),
    )
