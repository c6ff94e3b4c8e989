"""Random transport problems for the tests."""

from typing import NamedTuple

import numpy as np


class Instance(NamedTuple):
    cost: np.ndarray  # (V, N)
    a: np.ndarray  # (V,)
    b: np.ndarray  # (N,)
    reg: float


def random_instance(rng: np.random.Generator, *, spread: float = 2.0, mass: float | None = None) -> Instance:
    """V 1-400, N 1-6, reg 0.005-1, mass 0.05-1, uneven marginals, costs between 0 and `spread`."""
    n_patches, n_prompts = int(rng.integers(1, 401)), int(rng.integers(1, 7))
    reg = float(np.exp(rng.uniform(np.log(0.005), 0)))
    mass = float(rng.uniform(0.05, 1)) if mass is None else mass
    a = np.maximum(rng.dirichlet(np.full(n_patches, rng.uniform(0.5, 10))), 1e-9)
    b = np.maximum(rng.dirichlet(np.full(n_prompts, 2.0)), 1e-4)
    a /= a.sum()
    b *= mass / b.sum()
    return Instance(rng.uniform(0, spread, (n_patches, n_prompts)), a, b, reg)
