"""Random draws that give the same numbers on every platform, and shares that add up.

Only two primitives of NumPy are used: `Generator.random` (53 bits of the PCG64 stream, which NumPy keeps
fixed) and `Generator.standard_gamma`. Nothing depends on hash or set order.
"""

import numpy as np

from fedotp.data._types import Floats, Ints

_NOISE = 1e-9  # remainders closer than this are equal: platforms differ in the last bits


def generator(seed: int, *more: int) -> np.random.Generator:
    """Return the PCG64 generator of `seed`, or of several numbers."""
    return np.random.Generator(np.random.PCG64([seed, *more] if more else seed))


def shuffled(rng: np.random.Generator, values: Ints) -> Ints:
    """Return `values` (n,) in random order: sorted by n uniform draws."""
    return values[np.argsort(rng.random(len(values)), kind="stable")]


def dirichlet(rng: np.random.Generator, alpha: float, n: int) -> Floats:
    """Draw (n,) shares from the symmetric Dirichlet(alpha): n gamma draws, then n uniform ones.

    A Gamma(alpha) variable is a Gamma(alpha + 1) variable times U^(1/alpha). The logarithms are summed,
    so that alpha = 0.001 gives one share of 1 instead of 0/0.
    """
    log_gamma = np.log(rng.standard_gamma(alpha + 1.0, n)) + np.log1p(-rng.random(n)) / alpha
    weights = np.exp(log_gamma - log_gamma.max())
    return np.asarray(weights / weights.sum())


def apportion(total: int, weights: Floats, *, at_least: Ints, load: Ints | None = None) -> Ints:
    """Divide `total` things in proportion to `weights` (n,), giving everyone `at_least` (n,) of them.

    Largest remainders; between equal remainders the smaller `load` (n,) wins, then the earlier position.
    Needs `at_least.sum() <= total`; returns (n,) whole numbers that sum to `total`.
    """
    rest = int(total - at_least.sum())
    if rest == 0:
        return at_least.copy()
    missing = np.maximum(weights / weights.sum() * total - at_least, 0.0)
    quota = missing / missing.sum() * rest
    counts = np.floor(quota).astype(np.int64)
    remainder = np.round((quota - counts) / _NOISE)
    tie = np.zeros(len(weights), np.int64) if load is None else load
    order = np.lexsort((tie, -remainder))  # a stable sort: the earlier position comes first
    counts[order[: rest - int(counts.sum())]] += 1
    return np.asarray(at_least + counts)
