"""Configurations side by side."""

from fedotp._toml import Value
from fedotp.config._config import Config


def flatten(config: Config) -> dict[str, Value]:
    """Every key of a resolved configuration, dotted ("method.mass"), with its value; None where it has none."""
    flat: dict[str, Value] = {}
    for key, value in config.resolved.to_dict().items():
        flat |= {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def difference(a: Config, b: Config) -> dict[str, tuple[Value, Value]]:
    """The keys in which two configurations differ, with both values; None for a key that one does not have."""
    left, right = flatten(a), flatten(b)
    return {key: (left.get(key), right.get(key)) for key in {**left, **right} if left.get(key) != right.get(key)}
