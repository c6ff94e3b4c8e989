"""All readers of foreign input, by the rooms they are in."""

from fuzz.reader import Reader
from fuzz.readers import data, runs, sites, use


def all_readers() -> list[Reader]:
    """Every reader."""
    return [*data.WEIGHTS, *data.READERS, *runs.READERS, *use.READERS, *sites.READERS, *sites.SECURE]
