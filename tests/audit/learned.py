"""Data of which nothing but single images can be learned."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from federation.toy_federation import CLASSES, make_data
from fedotp.federation import FederatedData, Images


def by_heart(train: Sequence[int], test: Sequence[int]) -> FederatedData:
    """Labels that mean nothing, for so many images of each client: they are learned by heart, or not at all."""
    stream, data = np.random.default_rng(3), make_data(train, test)

    def meaningless(images: Images) -> Images:
        return replace(images, labels=stream.integers(0, len(CLASSES), len(images.labels)))

    return replace(data, train=meaningless(data.train), test=meaningless(data.test))
