"""Mutations of JSON, TOML and lists of lines."""

import base64
import json
import random
import re
from collections.abc import Iterator
from typing import Any

from fuzz.mutations import raw, text

_DEEP = 20_000
_JSON_VALUES = (
    "null", "true", "0", "-1", "1e999", "NaN", "-Infinity", "0.5", "9223372036854775807", "-9223372036854775809",
    "1" + "0" * 30, "9" * 5000, '""', '"x"', '"\\u0000"', '"\\ud800"', '"\\u001b[2J\\u202e"', '"../../intruder"',
    '"/intruder"', "[]", "{}", "[[[]]]", '[null]', '{"intruder": 1}', '{"a": 1, "a": 2}',
    '"' + "long " * 20_000 + '"', "[" * _DEEP + "]" * _DEEP, '{"a":' * _DEEP + "1" + "}" * _DEEP,
)  # fmt: skip
_TOML_VALUES = (
    "true", "0", "-1", "1", "3", "nan", "-inf", "1e300", "1e-300", "9223372036854775807", "-9223372036854775808",
    "1" + "0" * 30, "9" * 5000, "0.5", '""', '"x"', '"\\u0000"', '"\\u001b[2J\\u202e"', '"../../intruder"',
    '"hf:intruder/intruder"', "[]", "{}", "{a = {b = 1}}", "1979-05-27T07:32:00Z", '"' + "long " * 20_000 + '"',
    "[" * 2000 + "]" * 2000, "[" * _DEEP, "'''", "0x7fffffffffffffff", "[1, 2]",
)  # fmt: skip
_WHOLE = ("0", "1", "2", "3", "7", "-1", "1000", "100000", "2147483648", "9007199254740993", "9223372036854775807")
_REAL = ("0.0", "1.0", "0.5", "1.5", "-0.5", "0.999999", "1e-6", "1e6")
_REAL += ("1e-300", "5e-324", "1e300", "1.7976931348623157e308")
_WORDS = ("", " ", "\t", "\0", "\r", "\x1b[2J", "\u202e", "\ufeff", "../../intruder", "/intruder", "~", "-1", "0", "1")
_WORDS += ("99999999999999999999", "1e9", "nan", "x" * 100_000, "%s{}{0.__class__}", "a/b/c", "\u0661", "\x85", "²")
_SPOT = "\ue000spot\ue000"


def is_json(content: bytes) -> bool:
    """Whether the content can be read as JSON: an object or a list."""
    return content[:1] in (b"{", b"[") and _load(content) is not None


def is_json_lines(content: bytes) -> bool:
    """Whether every line can be read as JSON."""
    lines = content.splitlines()
    return len(lines) > 1 and all(line[:1] == b"{" and _load(line) is not None for line in lines)


def is_toml(content: bytes) -> bool:
    """Whether this looks like the files of fedotp in TOML."""
    return is_text(content) and re.search(rb"^\w[\w.-]* = ", content, re.MULTILINE) is not None


def is_text(content: bytes) -> bool:
    """Whether this is text with lines."""
    try:
        return b"\0" not in content and bool(content.decode().strip())
    except UnicodeDecodeError:
        return False


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """Another value, one left out, a key twice or with another name."""
    tree = _load(content)
    places = list(_places(tree))
    if tree is None or not places:
        return raw.mutate(content, rng)
    container, key = rng.choice(places)
    what = rng.random()
    inner = container[key]
    value = _alike(json.dumps(inner), rng) if rng.random() < 0.5 else rng.choice(_JSON_VALUES)
    if isinstance(inner, str) and is_json(inner.encode(errors="surrogatepass")) and what < 0.8:  # JSON in JSON
        container[key] = mutate_json(inner.encode(errors="surrogatepass"), rng).decode(errors="replace")
        return json.dumps(tree).encode()
    if what < 0.7:
        container[key] = _SPOT
    elif what < 0.85:
        del container[key]
    elif isinstance(container, dict):
        container[rng.choice(("", "intruder", "__class__", "a" * 1000))] = container.pop(key)
    else:
        container.extend([inner] * rng.choice((1, 1000)))
    return json.dumps(tree).replace(json.dumps(_SPOT), value).encode()


def mutate_json_lines(content: bytes, rng: random.Random) -> bytes:
    """One line mutated, or left out, or there twice."""
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    lines[at : at + 1] = rng.choice(([mutate_json(lines[at], rng)],) * 4 + ([], [lines[at]] * 2, [b""]))
    return b"\n".join(lines) + b"\n"


def mutate_toml(content: bytes, rng: random.Random) -> bytes:
    """Another value for a key, or a line left out, doubled or broken."""
    lines = content.decode().splitlines()
    settings = [i for i, line in enumerate(lines) if " = " in line]
    at = rng.choice(settings)
    key, _, old = lines[at].partition(" = ")
    what = rng.random()
    if what < 0.8:
        lines[at] = f"{key} = {_alike(old, rng) if rng.random() < 0.6 else rng.choice(_TOML_VALUES)}"
    elif what < 0.9:
        lines[at : at + 1] = rng.choice(([], [lines[at]] * 2, [f"[{key}]"], [f"{key}.a.b = 1"]))
    else:
        lines[at] = raw.mutate(lines[at].encode(), rng).decode(errors="surrogateescape")
    return "\n".join([*lines, ""]).encode(errors="surrogateescape")


def mutate_lines(content: bytes, rng: random.Random) -> bytes:
    """A word replaced, a line left out or doubled, bytes that are not text."""
    lines = content.decode().split("\n")
    at = rng.randrange(len(lines))
    what = rng.random()
    if what < 0.6:
        words = re.split(r"([\s/,])", lines[at])
        words[rng.randrange(len(words))] = rng.choice(_WORDS)
        lines[at] = "".join(words)
    elif what < 0.9:
        lines[at : at + 1] = rng.choice(([], [lines[at]] * 2, [lines[at]] * 1000, lines[at].split(" ")))
    else:
        return raw.mutate(content, rng)
    return "\n".join(lines).encode()


def _alike(old: str, rng: random.Random) -> str:
    """Another value of the same type, which a check of types lets pass."""
    if old in ("true", "false"):
        return "false" if old == "true" else "true"
    if re.fullmatch(r"-?\d+", old):
        return rng.choice(_WHOLE)
    if re.fullmatch(r"-?\d+\.[\de+-]*|-?\d+e[\d+-]+", old):
        return rng.choice(_REAL)
    if old.startswith('"'):
        return rng.choice(
            ('""', '"x"', f'{old[:-1]}x"', '"\\u0000"', '"\\u001b[2J\\u202e"', '"{}{}{0}"', f'"{"long " * 999}"')
        )
    return old


def _load(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index) in a tree of JSON."""
    inside = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    for key, value in inside:
        yield tree, key
        yield from _places(value)


_BLOCK = re.compile(rb"(-----BEGIN [A-Z ]+-----\n)(.*?)(\n-----END [A-Z ]+-----)", re.DOTALL)


def is_pem(content: bytes) -> bool:
    """Whether there is something between BEGIN and END."""
    return _BLOCK.search(content) is not None


def mutate_pem(content: bytes, rng: random.Random) -> bytes:
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
