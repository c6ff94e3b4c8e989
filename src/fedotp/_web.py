"""Basics of the local pages: host names, response headers, digests for a Content-Security-Policy."""

import base64
import hashlib
import ipaddress
import urllib.parse

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_address(name: str) -> bool:
    """True if `name` is an IP address. A foreign page can make its own name resolve to this machine, but no address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """True if the address is reachable only from this machine."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def host_and_port(header: str) -> tuple[str, int | None]:
    """Parse HOST[:PORT], such as a Host header; the host is "" if it is invalid."""
    try:
        parts = urllib.parse.urlsplit(f"//{header}")
        name, port = parts.hostname or "", parts.port
    except ValueError:
        return "", None
    return ("", None) if parts.username is not None or parts.path else (name, port)


def digest_source(text: str) -> str:
    """Return the source of a policy that permits an inline script or style with this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
