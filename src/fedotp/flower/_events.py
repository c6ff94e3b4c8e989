"""Events of a server or a site: keys, orders, updates, rounds, privacy; for the security log and the status page."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import fedotp
from fedotp._text import one_line

Event = Literal[
    "start",  # role, version; server: address, sites; site: name, server
    "stop",  # reason
    "configuration",  # run, digest of its agreement, method, rounds; what="keys": site; a site: share, digest of policy
    "key-accepted",  # site, address; a site: server
    "key-refused",  # site or fingerprint, address, reason; a site: server, reason
    "status-refused",  # a wrong token of the status page: address
    "ready",  # site, images
    "disconnected",  # site
    "order",  # kind, run, round, digests of agreement and parameters; server: site
    "order-refused",  # by a site: kind, run, round, agreement, reason; at a server, before the first round: site
    "update",  # sent by a site: run, round, weight, digest
    "update-refused",  # by the server: site, run, round, reason
    "round",  # run, round, rounds, answered, faults, seconds, loss, digest of the new parameters, epsilon
    "evaluation",  # run, round, accuracy; server: accuracy of each of the sites
    "privacy-spent",  # unit, epsilon, delta; a site: run, epsilon of this run, total of all runs
    "release",  # what: "private average" with run, round, digest; "classifier" with run, path
]

Handler = Callable[[Event, dict[str, Any]], object]

_handlers: list[Handler] = []


def record(event: Event, **facts: Any) -> None:
    """Pass an event of this process to all handlers, in the calling thread; `facts` must be serialisable as JSON.

    Non-finite numbers, for example the loss of a round in which no site shares it, become None.
    """
    facts = {key: None if isinstance(fact, float) and not math.isfinite(fact) else fact for key, fact in facts.items()}
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


@contextlib.contextmanager
def recording_life(role: str, **facts: Any) -> Iterator[None]:
    """Record the start of a server or a site, and its stop with the reason."""
    record("start", role=role, version=fedotp.__version__, **facts)
    reason = "finished"
    try:
        yield
    except KeyboardInterrupt:
        reason = "interrupted"
        raise
    except BaseException as error:
        reason = one_line(error) or type(error).__name__
        raise
    finally:
        record("stop", reason=reason)
