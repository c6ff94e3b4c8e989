"""Bytes by a site's number, as they travel, and back."""

from collections.abc import Mapping, Sequence

from fedotp.errors import FedotpError

NUMBERS, PARTS, NAMES = "numbers", "parts", "names"
_MOST, _LONGEST = 10_000, 1000  # sites, bytes of a part


def pack(parts: Mapping[int, bytes], key: str = PARTS) -> dict[str, list[int] | list[bytes]]:
    """Two lists of the same order."""
    return {NUMBERS: sorted(parts), key: [parts[number] for number in sorted(parts)]}


def unpack(record: Mapping[str, object], key: str = PARTS) -> dict[int, bytes]:
    """What a stranger has packed."""
    numbers, parts = record.get(NUMBERS), record.get(key)
    if not (_is_list(numbers, int) and _is_list(parts, bytes) and len(numbers) == len(parts)):  # type: ignore[arg-type]
        raise FedotpError(f"the message has no {key} by number; install the same version of fedotp")
    by_number = dict(zip(numbers, parts, strict=True))  # type: ignore[call-overload]
    if len(by_number) < len(parts) or any(len(part) > _LONGEST for part in by_number.values()):  # type: ignore[arg-type]
        raise FedotpError(f"the message's {key} repeat a number, or are longer than {_LONGEST} bytes")
    return by_number


def unpack_numbers(record: Mapping[str, object]) -> list[int]:
    """The sites' numbers, all different."""
    numbers = record.get(NUMBERS)
    if not isinstance(numbers, list) or not _is_list(numbers, int) or len(set(numbers)) < len(numbers):
        raise FedotpError("the message does not say which sites it is about; install the same version of fedotp")
    return numbers


def unpack_names(record: Mapping[str, object]) -> dict[int, str]:
    """The sites' names, by number."""
    numbers, names = record.get(NUMBERS), record.get(NAMES)
    if not (_is_list(numbers, int) and _is_list(names, str) and len(numbers) == len(names)):  # type: ignore[arg-type]
        raise FedotpError("the message has no names by number; install the same version of fedotp")
    return dict(zip(numbers, names, strict=True))  # type: ignore[call-overload]


def _is_list(values: object, kind: type) -> bool:
    return isinstance(values, Sequence) and len(values) <= _MOST and all(type(value) is kind for value in values)
