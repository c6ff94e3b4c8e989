"""The wire format of server and sites: keys of records, arrays and numbered parts, with checks of untrusted input."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeGuard, TypeVar

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

# steps of a secure sum: queries to sites, and their fields
KEYS, SHARES, SURVIVORS, SIGNATURES = "secure_keys", "secure_shares", "secure_survivors", "secure_signatures"
SESSION = "session"
SIGNATURE = "signature"  # of the statement about an update
MARKS = "marks"
MASKED = "masked"

# facts that a site reports about itself
PART = "part"
DOMAIN = "domain"
TRAIN_IMAGES = "train-images"
TEST_IMAGES = "test-images"


def of_metric(key: str) -> str:
    """Return the key of a metric in a site's report."""
    return key.replace("_", "-")


_HEADER = 10_000  # bytes of an array beyond its values
_NUMBERS, _PARTS, NAMES = "numbers", "parts", "names"
_MOST_SITES = 10_000
_LONGEST = 1000  # bytes of a part
_Kind = TypeVar("_Kind")


@contextmanager
def untrusted_input() -> Iterator[None]:
    """Convert any error into a FedotpError, which counts as the sender's fault."""
    try:
        yield
    except FedotpError:
        raise
    except Exception as error:
        raise FedotpError(f"invalid answer ({type(error).__name__})") from error


def facts_of(reply: Message, refusal: str = "refused the request: ") -> ConfigRecord:
    """Return the facts in an answer beside arrays and metrics. Raise FedotpError for an error or a refusal."""
    if reply.has_error():
        raise FedotpError(f"request failed: {reply.error.reason}")
    if not reply.has_content():
        raise FedotpError("empty answer")
    facts = reply.content.config_records.get(CONFIG, ConfigRecord())
    if REFUSED in facts:
        raise FedotpError(f"{refusal}{facts[REFUSED]!s}")
    return facts


def to_record(params: Parameters) -> ArrayRecord:
    """Convert parameters, without client axis, to arrays."""
    return ArrayRecord({name: Array(value.detach().cpu().contiguous().numpy()) for name, value in params.items()})


def digest_of(params: Parameters) -> str:
    """Compute a digest of names, types, shapes and values."""
    values = {name: params[name].detach().cpu().contiguous().numpy() for name in sorted(params)}
    facts = ((name, str(value.dtype), str(value.shape), value.tobytes()) for name, value in values.items())
    return digest(*(part if isinstance(part, bytes) else part.encode() for each in facts for part in each)).hex()


def from_record(record: ArrayRecord, expected: Parameters) -> Parameters:
    """Read parameters with the names, shapes and types of `expected`; all values must be finite."""
    if set(record) != set(expected):
        right, got = (", ".join(sorted(names)) or "nothing" for names in (expected, record))
        raise FedotpError(f"expected arrays {right}, got {got}")
    return {name: _tensor(name, record[name], value) for name, value in expected.items()}


def read_array(name: str, array: Array, most_bytes: int) -> NDArray[Any]:
    """Read an untrusted array of at most `most_bytes`."""
    if len(array.data) > most_bytes + _HEADER:
        raise FedotpError(f"{name} must have at most {most_bytes} bytes, got {len(array.data)}")
    try:
        return np.array(array.numpy())
    except Exception as error:  # NumPy raises errors of many types for invalid bytes
        raise FedotpError(f"cannot parse {name} ({type(error).__name__})") from error


def _tensor(name: str, array: Array, expected: torch.Tensor) -> torch.Tensor:
    right = expected.detach().cpu().numpy()
    values = read_array(name, array, right.nbytes)
    if values.shape != right.shape or values.dtype != right.dtype:
        raise FedotpError(
            f"{name} must be {right.dtype} of shape {right.shape}, got {values.dtype} of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise FedotpError(f"{name} contains non-finite values")
    return torch.from_numpy(values).to(expected.device)


def pack(parts: Mapping[int, bytes], key: str = _PARTS) -> dict[str, list[int] | list[bytes]]:
    """Convert to two lists in the same order."""
    return {_NUMBERS: sorted(parts), key: [parts[number] for number in sorted(parts)]}


def unpack(record: Mapping[str, object], key: str = _PARTS) -> dict[int, bytes]:
    """Read the untrusted output of `pack`."""
    numbers, parts = unpack_numbers(record), record.get(key)
    if not (_is_list(parts, bytes) and len(parts) == len(numbers) and all(len(part) <= _LONGEST for part in parts)):
        raise FedotpError(f"the message contains no valid {key}; install the same version of fedotp")
    return dict(zip(numbers, parts, strict=True))


def unpack_numbers(record: Mapping[str, object]) -> list[int]:
    """Read the sites' numbers, which must be unique."""
    numbers = record.get(_NUMBERS)
    if not _is_list(numbers, int) or len(set(numbers)) < len(numbers):
        raise FedotpError("the message contains no valid site numbers; install the same version of fedotp")
    return numbers


def _is_list(values: object, kind: type[_Kind]) -> TypeGuard[list[_Kind]]:
    return isinstance(values, list) and len(values) <= _MOST_SITES and all(type(value) is kind for value in values)
