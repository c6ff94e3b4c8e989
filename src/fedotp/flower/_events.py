"""Events of a server or a site: keys, orders, updates, rounds, privacy; for the security log and the status page."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

Event = Literal[
    "start",  # role, version, name or sites, address
    "stop",  # reason
    "configuration",  # of a run or a policy, with its digest; also a change of it
    "key-accepted",  # site, address; a site: server
    "key-refused",  # site or fingerprint, address, reason
    "order",  # a request: kind, run, round, digest of its agreement, digest of the parameters in it
    "order-refused",  # a request that a site refused: the same, and the reason
    "update",  # sent by a site: run, round, weight, digest
    "update-refused",  # by the server: site, round, reason
    "round",  # run, round, sites that answered, faults, seconds, digest of the new parameters
    "privacy-spent",  # unit, epsilon, delta
    "release",  # what was made available: a classifier, a private average
]

Handler = Callable[[Event, dict[str, Any]], object]

_handlers: list[Handler] = []


def record(event: Event, **facts: Any) -> None:
    """Pass an event of this process to all handlers, in the calling thread; `facts` must be serialisable as JSON."""
    for handler in tuple(_handlers):
        handler(event, facts)


@contextlib.contextmanager
def handling(handler: Handler) -> Iterator[None]:
    """Call `handler` for each event while the context is open."""
    _handlers.append(handler)
    try:
        yield
    finally:
        _handlers.remove(handler)
