"""Random draws that are the same on every platform, and apportionment.

They use only `Generator.random` (53 bits of the PCG64 stream, which NumPy keeps stable) and `Generator.standard_gamma`,
and do not depend on hash or set order.
"""

import numpy as np

from fedotp.data._types import Floats, Ints

_NOISE = 1e-9  # remainders closer than this count as equal: platforms differ in the last bits


def generator(seed: int, *more: int) -> np.random.Generator:
    """Return a PCG64 generator seeded with one or several numbers."""
    return np.random.Generator(np.random.PCG64([seed, *more] if more else seed))


def shuffled(rng: np.random.Generator, values: Ints) -> Ints:
    """Return `values` (n,) in random order: sorted by n uniform draws."""
    return values[np.argsort(rng.random(len(values)), kind="stable")]


def dirichlet(rng: np.random.Generator, alpha: float, n: int) -> Floats:
    """Draw (n,) shares from the symmetric Dirichlet(alpha): n gamma draws, then n uniform ones.

    A Gamma(alpha) variable is a Gamma(alpha + 1) variable times U^(1/alpha). Logarithms are summed, so that
    alpha = 0.001 gives one share of 1 instead of 0/0.
    """
    log_gamma = np.log(rng.standard_gamma(alpha + 1.0, n)) + np.log1p(-rng.random(n)) / alpha
    weights = np.exp(log_gamma - log_gamma.max())
    return np.asarray(weights / weights.sum())


def apportion(total: int, weights: Floats, *, at_least: Ints, load: Ints | None = None) -> Ints:
    """Divide `total` items in proportion to `weights` (n,), with a minimum `at_least` (n,).

    Uses largest remainders; ties go to the smaller `load` (n,), then to the earlier position. Requires
    `at_least.sum() <= total`; returns (n,) whole numbers that sum to `total`.
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
