"""Mutations of Flower's messages, object by object, as they lie on the wire.

An object is a head (its kind, the ids of the objects within, the length of its body), a zero, and the body: JSON,
protobuf, or the bytes of an array.
"""

import random
from collections.abc import Callable
from typing import Any

from flwr.app import ConfigRecord, MetricRecord
from flwr.common.serde import (
    config_record_from_proto,
    config_record_to_proto,
    metric_record_from_proto,
    metric_record_to_proto,
)
from flwr.proto.recorddict_pb2 import ConfigRecord as ProtoConfigRecord
from flwr.proto.recorddict_pb2 import MetricRecord as ProtoMetricRecord

from fuzz.mutations import text

_KINDS = (b"Message ", b"RecordDict ", b"ArrayRecord ", b"Array ", b"ArrayChunk ", b"ConfigRecord ", b"MetricRecord ")
_NUMBERS: tuple[int | float, ...] = (0, 1, -1, 2, 10**9, 2**63 - 1, -(2**63), 0.5, 1e300, -1e300, 1e-300)
_NUMBERS += (float("nan"), float("inf"), -float("inf"))
_TEXTS = ("", "x", "\0", "\x1b[2J\u202e", "a\nb", "site-1", "../../intruder", "long " * 20_000)
_LISTS: tuple[Any, ...] = ([], [1, 2], [0.5] * 3, ["a", "a"], [""], ["\x1b"], ["x"] * 100_000, [True], [2**63 - 1])
_BYTES = (b"", b"\x80\x02.", bytes(1000))


def is_object(content: bytes) -> bool:
    """Whether this is one of Flower's objects."""
    return content.startswith(_KINDS) and b"\0" in content


def mutate(content: bytes, rng: random.Random, within: Callable[[bytes, random.Random], bytes]) -> bytes:
    """Mostly the body mutated under a head that fits; else the head."""
    head, _, body = content.partition(b"\0")
    kind, rest = head.split(b" ", 1)
    what = rng.random()
    if what < 0.1:
        return text.mutate_lines(head, rng) + b"\0" + body
    if what < 0.15:
        return head.replace(kind, rng.choice(_KINDS).strip()) + b"\0" + body
    if kind in (b"ConfigRecord", b"MetricRecord") and what < 0.85:
        body = _other_values(kind, body, rng)
    else:
        body = within(body, rng)
    children = rest.rpartition(b" ")[0]
    return kind + b" " + children + b" " + str(len(body)).encode() + b"\0" + body


def _other_values(kind: bytes, body: bytes, rng: random.Random) -> bytes:
    """A record in which one value is another, or missing, or under another name."""
    record: Any = (
        config_record_from_proto(ProtoConfigRecord.FromString(body))
        if kind == b"ConfigRecord"
        else metric_record_from_proto(ProtoMetricRecord.FromString(body))
    )
    values = dict(record)
    key = rng.choice(sorted(values)) if values else "intruder"
    old = values.pop(key, None)
    if isinstance(old, str) and text.is_json(old.encode(errors="surrogatepass")) and rng.random() < 0.8:
        values[key] = text.mutate_json(old.encode(), rng).decode(errors="replace")
    elif rng.random() < 0.8:
        pool = _NUMBERS if kind == b"MetricRecord" else rng.choice((_NUMBERS, _TEXTS, _LISTS, _BYTES))
        values[key] = rng.choice(pool)
    elif rng.random() < 0.5:
        values["intruder"] = 1 if old is None else old
    if kind == b"ConfigRecord":
        return config_record_to_proto(ConfigRecord(values)).SerializeToString()
    return metric_record_to_proto(MetricRecord(values)).SerializeToString()
