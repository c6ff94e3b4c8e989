"""The wire format of server and sites: keys of records, arrays, numbered parts, with checks of untrusted input."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray

from fedotp.errors import FedotpError
from fedotp.flower.secure import digest
from fedotp.methods import Parameters

CONFIG = "config"
ARRAYS = "arrays"
METRICS = "metrics"
PREDICTIONS = "predictions"

NUMBER = "number"
ROUND = "server-round"
ACCEPTED = "accepted"
LAST = "last"
EXAMPLES = "num-examples"
LOSS = "loss"
IMAGES = "images"
STEPS = "noisy-steps"
REFUSED = "refused"
CLASSES = "classes"
NAME = "name"
COLUMNS = ("row", "label", "predicted", "loss")  # of predictions

# steps of a secure sum: queries to sites, and what is in them
KEYS, SHARES, SURVIVORS, SIGNATURES = "secure_keys", "secure_shares", "secure_survivors", "secure_signatures"
SESSION = "session"
MARKS = "marks"
MASKED = "masked"

# what a site reports about itself
PART = "part"
DOMAIN = "domain"
TRAIN_IMAGES = "train-images"
TEST_IMAGES = "test-images"


def of_metric(key: str) -> str:
    """The key of a metric in a site's report of its tests."""
    return key.replace("_", "-")


_HEADER = 10_000  # bytes of an array beyond its values
_NUMBERS, _PARTS, _NAMES = "numbers", "parts", "names"
_MOST_SITES = 10_000
_LONGEST = 1000  # bytes of a part


@contextmanager
def untrusted_input() -> Iterator[None]:
    """Turn any error while untrusted input is read into a FedotpError, which counts as the sender's fault."""
    try:
        yield
    except FedotpError:
        raise
    except Exception as error:
        raise FedotpError(f"its answer makes no sense ({type(error).__name__})") from error


def facts_of(reply: Message, refusal: str = "it refuses: ") -> ConfigRecord:
    """What a site says in an answer beside arrays and numbers. An error, and a refusal, are raised."""
    if reply.has_error():
        raise FedotpError(f"it failed: {reply.error.reason}")
    if not reply.has_content():
        raise FedotpError("its answer is empty")
    facts = reply.content.config_records.get(CONFIG, ConfigRecord())
    if REFUSED in facts:
        raise FedotpError(f"{refusal}{facts[REFUSED]!s}")
    return facts


def to_record(params: Parameters) -> ArrayRecord:
    """Parameters, without client axis, as arrays."""
    return ArrayRecord({name: Array(value.detach().cpu().contiguous().numpy()) for name, value in params.items()})


def digest_of(params: Parameters) -> str:
    """Equal for equal parameters: names, types, shapes and all values."""
    values = {name: params[name].detach().cpu().contiguous().numpy() for name in sorted(params)}
    facts = ((name, str(value.dtype), str(value.shape), value.tobytes()) for name, value in values.items())
    return digest(*(part if isinstance(part, bytes) else part.encode() for each in facts for part in each)).hex()


def from_record(record: ArrayRecord, expected: Parameters) -> Parameters:
    """The arrays of `record` like `expected`: the same names, shapes and types, all values finite."""
    if set(record) != set(expected):
        raise FedotpError(f"it holds {_listed(record)}; right is {_listed(expected)}")
    return {name: _tensor(name, record[name], value) for name, value in expected.items()}


def read_array(name: str, array: Array, most_bytes: int) -> NDArray[Any]:
    """The values of an untrusted array of at most `most_bytes`."""
    if len(array.data) > most_bytes + _HEADER:
        raise FedotpError(f"{name} takes {len(array.data)} bytes; right is at most {most_bytes}")
    try:
        return np.array(array.numpy())
    except Exception as error:  # NumPy raises many kinds for invalid bytes
        raise FedotpError(f"{name} cannot be read ({type(error).__name__})") from error


def _tensor(name: str, array: Array, expected: torch.Tensor) -> torch.Tensor:
    right = expected.detach().cpu().numpy()
    values = read_array(name, array, right.nbytes)
    if values.shape != right.shape or values.dtype != right.dtype:
        raise FedotpError(
            f"{name} is {values.dtype} of shape {values.shape}; right is {right.dtype} of shape {right.shape}"
        )
    if not np.isfinite(values).all():
        raise FedotpError(f"{name} has values that are not finite")
    return torch.from_numpy(values).to(expected.device)


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def pack(parts: Mapping[int, bytes], key: str = _PARTS) -> dict[str, list[int] | list[bytes]]:
    """Two lists of the same order."""
    return {_NUMBERS: sorted(parts), key: [parts[number] for number in sorted(parts)]}


def unpack(record: Mapping[str, object], key: str = _PARTS) -> dict[int, bytes]:
    """Read what `pack` has made; untrusted."""
    parts = _numbered(record, key, bytes)
    by_number = dict(parts)
    if len(by_number) < len(parts) or any(len(part) > _LONGEST for part in by_number.values()):
        raise FedotpError(f"the message's {key} repeat a number, or are longer than {_LONGEST} bytes")
    return by_number


def unpack_numbers(record: Mapping[str, object]) -> list[int]:
    """The sites' numbers, all different."""
    numbers = record.get(_NUMBERS)
    if not isinstance(numbers, list) or not _is_list(numbers, int) or len(set(numbers)) < len(numbers):
        raise FedotpError("the message does not say which sites it is about; install the same version of fedotp")
    return numbers


def unpack_names(record: Mapping[str, object]) -> dict[int, str]:
    """The sites' names, by number."""
    return dict(_numbered(record, _NAMES, str))


def _numbered(record: Mapping[str, object], key: str, kind: type) -> list[tuple[int, Any]]:
    numbers, values = record.get(_NUMBERS), record.get(key)
    if not (_is_list(numbers, int) and _is_list(values, kind) and len(numbers) == len(values)):  # type: ignore[arg-type]
        raise FedotpError(f"the message has no {key} by number; install the same version of fedotp")
    return list(zip(numbers, values, strict=True))  # type: ignore[call-overload]


def _is_list(values: object, kind: type) -> bool:
    return isinstance(values, Sequence) and len(values) <= _MOST_SITES and all(type(value) is kind for value in values)
