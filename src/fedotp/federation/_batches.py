"""The steps of local training: which image is in which batch of which client."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedotp.federation._random import Ints, order


class Step(NamedTuple):
    """One step of the A clients still at work, the first A of a group sorted by number of steps.

    places: (A, B) positions in the clients' own lists of images, -1 for padding; epochs: (A,) counted from 0.
    """

    places: Ints
    epochs: Ints


def steps_per_epoch(sizes: Ints, batch_size: int, drop_last: bool) -> Ints:
    """Steps each client makes in an epoch (C,): the last batch may be smaller, or is dropped if it is not the only."""
    whole = sizes // batch_size
    return np.where(drop_last & (whole > 0), whole, -(-sizes // batch_size))


def local_steps(
    sizes: Ints,
    generators: Sequence[np.random.Generator],
    *,
    epochs: int,
    batch_size: int,
    drop_last: bool = False,
) -> Iterator[Step]:
    """All steps of a group of clients with `sizes` (C,) images, sorted by falling size.

    Every epoch is a new random order of a client's images, drawn from its generator, cut into batches.
    """
    per_epoch = steps_per_epoch(sizes, batch_size, drop_last)
    totals = per_epoch * epochs
    width = min(batch_size, int(sizes.max(initial=0)))
    orders: list[Ints] = [np.empty(0, np.int64)] * len(sizes)
    for step in range(int(totals.max(initial=0))):
        n_active = int((totals > step).sum())
        places = np.full((n_active, width), -1, np.int64)
        for client in range(n_active):
            start = step % per_epoch[client] * batch_size
            if start == 0:
                orders[client] = order(generators[client], int(sizes[client]))
            batch = orders[client][start : start + batch_size]
            places[client, : len(batch)] = batch
        yield Step(places, step // per_epoch[:n_active])
