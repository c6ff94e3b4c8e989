"""Random numbers without state: every draw is named by what it is for.

A draw depends on the seed, its purpose, the round and the client, and on nothing that happened before. So a resumed
run needs no saved generators, clients trained side by side draw what they would draw alone, and a site that is one
client of a real federation draws what the simulator would draw for it.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def draws(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """The generator of one purpose, for example `draws(seed, "batches", round, client)`."""
    entropy = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *numbers])
    return np.random.Generator(np.random.PCG64(entropy))


def order(rng: np.random.Generator, n: int) -> Ints:
    """A random order of 0 to n - 1."""
    return np.argsort(rng.random(n), kind="stable")
