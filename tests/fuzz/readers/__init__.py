"""All readers of foreign input, by the rooms they are in."""

from fuzz.reader import Reader
from fuzz.readers import data, runs, secure, sites, use, weights


def all_readers() -> list[Reader]:
    """Every reader."""
    return [*weights.READERS, *data.READERS, *runs.READERS, *use.READERS, *sites.READERS, *secure.READERS]
