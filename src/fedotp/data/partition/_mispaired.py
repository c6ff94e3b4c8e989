"""Labels beside other images: a defect of published code, to be made on purpose."""

from collections.abc import Sequence

import numpy as np

from fedotp.data._random import shuffled
from fedotp.data._types import Ints


def other_images(domains: Ints, clients: Sequence[Ints], *, seed: int, among: Ints | None = None) -> Ints:
    """Which image (n,) stands at each of n positions when a client's list selects its labels but not its images.

    Its j-th label is that of its own j-th image; beside it stands the j-th image of its domain (of all, where its own
    are of several), however its list goes. Which images are first is drawn from `seed`, once per domain: published
    lists are in no order. `domains` (n,) are those of all positions, `clients` (m_i,) the positions of each client;
    `among` are the positions that count as images, all if not given. Where no client is, nothing changes.
    """
    seen = np.arange(len(domains))
    images = np.arange(len(domains)) if among is None else among
    for rows in clients:
        own = np.unique(domains[rows])
        number = int(own[0]) if len(own) == 1 else 0
        candidates = images[domains[images] == number] if len(own) == 1 else images
        rng = np.random.Generator(np.random.PCG64([seed, number]))
        seen[rows] = shuffled(rng, candidates)[: len(rows)]
    return seen
