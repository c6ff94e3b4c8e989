"""The request of `fedotp client --check`: what an accepted site can learn of the server before it joins."""

import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.flower._findings import Asked
from fedotp.flower.keys import SiteKeys
from fedotp.flower.link import _flwr
from fedotp.flower.link._access import CHECK
from fedotp.flower.link._supernode import REFUSED, RETRIED

_SECONDS = 20.0  # timeout
_MOST_BYTES = 4 << 20  # of the answer, mostly class names
_PROBLEMS = REFUSED | {
    "refused": "the server is not running, or uses another port",
    "idna": "not a host name; correct --server",
    "invalid": "correct --server",
    "name": "this host name is unknown; correct --server",
    "SSL": "this port does not speak TLS as fedotp does, or a proxy intervenes",
    "timed out": "a firewall may discard the packets",
}


def ask_server(server: str, keys: SiteKeys | None) -> Asked:
    """Ask the server at HOST:PORT. Raises FedotpError if it cannot be reached, or its certificate is not accepted."""
    verify = ssl.create_default_context(cafile=keys.ca) if keys else False
    began, content = _now(), b""
    headers = _flwr.signed_headers(keys.key, began) if keys else {}
    url = f"{'https' if keys else 'http'}://{server}{CHECK}"
    try:
        with httpx.Client(verify=verify, timeout=_SECONDS) as client, client.stream("GET", url, headers=headers) as got:
            for part in got.iter_raw():
                content += part
                if len(content) > _MOST_BYTES:
                    raise FedotpError(f"{server}: its answer has more than {_MOST_BYTES >> 20} MiB")
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        words = one_line(error) or type(error).__name__
        known = (f"{why} ({words})" for sign, why in _PROBLEMS.items() if sign.lower() in words.lower())
        raise FedotpError(f"{server}: {next(known, words)}") from error
    facts = _facts(content) if got.status_code == 200 else {}
    there, ahead = facts.get("time"), None
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(there, float):
            there = parsedate_to_datetime(got.headers.get("date", "")).timestamp() + 0.5  # it has whole seconds
        ahead = (began + (_now() - began) / 2).timestamp() - there
    refused = "" if facts else _refusal(got.status_code, content.decode(errors="replace"))
    version, agreement = one_line(facts.get("version"), 40), str(facts.get("agreement", ""))
    return Asked(refused, version, agreement, ahead, _flwr.EARLIEST, _flwr.LATEST, str(facts.get("peers", "")))


def _refusal(status: int, text: str) -> str:
    if status == 401:
        return "the server rejects this site's signature; see the clock"
    known = (why.removesuffix("; retrying") for sign, why in (REFUSED | RETRIED).items() if sign in text)
    return next(known, f"unexpected answer with status {status} ({one_line(text, 100)}); is this a server of fedotp?")


def _facts(content: bytes) -> Mapping[str, Any]:
    with suppress(ValueError, RecursionError):
        facts = json.loads(content)
        if isinstance(facts, dict):
            return facts
    return {}


def _now() -> datetime:
    return datetime.now(UTC)
