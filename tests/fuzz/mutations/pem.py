"""Mutations of keys and certificates as text."""

import base64
import random
import re

from fuzz.mutations import raw, text

_BLOCK = re.compile(rb"(-----BEGIN [A-Z ]+-----\n)(.*?)(\n-----END [A-Z ]+-----)", re.DOTALL)


def is_pem(content: bytes) -> bool:
    """Whether there is something between BEGIN and END."""
    return _BLOCK.search(content) is not None


def mutate(content: bytes, rng: random.Random) -> bytes:
    """The bytes within mutated and written as text again, or the text itself."""
    if rng.random() < 0.3:
        return text.mutate_lines(content, rng)

    def change(found: re.Match[bytes]) -> bytes:
        try:
            within = base64.b64decode(found[2])
        except ValueError:
            return raw.mutate(found[0], rng)
        return found[1] + base64.encodebytes(raw.mutate(within, rng)).rstrip(b"\n") + found[3]

    return _BLOCK.sub(change, content, count=1)
