"""The request of `fedotp client --check`: what an accepted site may know of the server before it joins."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.flower.keys import SiteKeys, load_private
from fedotp.flower.link import _flwr
from fedotp.flower.link._access import CHECK
from fedotp.flower.link._supernode import REFUSED, RETRIED

_SECONDS = 20.0  # timeout
_MOST_BYTES = 4 << 20  # of the answer, mostly class names
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


@dataclass(frozen=True)
class Asked:
    """The answer of a server that was reached.

    `untrusted` and `refused` are the reasons for which this site does not accept the server's certificate, or the
    server does not accept this site's key. `ahead` is how many seconds this site's clock is ahead of the server's,
    `facts` are the server's version, time and agreement.
    """

    untrusted: str = ""
    refused: str = ""
    ahead: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def ask_server(server: str, keys: SiteKeys | None) -> Asked:
    """Ask the server at HOST:PORT. Raises FedotpError if it cannot be reached."""
    verify = ssl.create_default_context(cafile=keys.ca) if keys else False
    began = _now()
    headers = _flwr.signed_headers(load_private(keys.key), began) if keys else {}
    url = f"{'https' if keys else 'http'}://{server}{CHECK}"
    content = b""
    try:
        with (
            httpx.Client(verify=verify, timeout=_SECONDS) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            for part in answer.iter_raw():
                content += part
                if len(content) > _MOST_BYTES:
                    return Asked(refused=f"its answer has more than {_MOST_BYTES >> 20} MiB")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return _unanswered(server, error)
    ended, text = _now(), content.decode(errors="replace")
    facts = _facts(text) if answer.status_code == 200 else {}
    there = facts.get("time")
    if not isinstance(there, int | float):
        there = _of_date(answer.headers.get("date", ""))
    ahead = None if there is None else (began + (ended - began) / 2).timestamp() - there
    return Asked(refused="" if facts else _refusal(answer.status_code, text), ahead=ahead, facts=facts)


def _unanswered(server: str, error: Exception) -> Asked:
    """Return a problem of TLS; raise FedotpError for one of the network."""
    words = one_line(error) or type(error).__name__
    if _UNTRUSTED in words:
        detail = words.partition("certificate verify failed: ")[2].partition(" (_ssl")[0]
        return Asked(untrusted=f"{REFUSED[_UNTRUSTED]} ({detail or words})")
    if "SSL" in words or isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return Asked(
            untrusted=f"the program at this address does not use TLS as fedotp does, or a proxy intervenes ({words})"
        )
    if isinstance(error, httpx.ConnectTimeout):
        words = f"no answer within {_SECONDS:.0f} s; a firewall may discard the packets"
    elif "refused" in words:
        words = "connection refused; the server is not running, or uses another port"
    elif "name" in words.lower():
        words = f"this host name is unknown; correct --server, or ask the network's administrators ({words})"
    raise FedotpError(f"{server}: {words}")


def _refusal(status: int, text: str) -> str:
    if status == 404:
        return "the server does not know this check; it runs another version of fedotp"
    if status == 401:
        return "the server rejects this site's signature; see the clock below"
    known = (meaning.removesuffix("; retrying") for sign, meaning in (REFUSED | RETRIED).items() if sign in text)
    return next(known, f"the server answers with status {status}: {one_line(text, 200)}")


def _facts(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _of_date(header: str) -> float | None:
    """Return the time of a header of HTTP, which is in whole seconds."""
    try:
        return parsedate_to_datetime(header).timestamp() + 0.5
    except (TypeError, ValueError):
        return None


def _now() -> datetime:
    return datetime.now(UTC)
