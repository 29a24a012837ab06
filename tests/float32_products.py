"""Random float32 operands, and the bound on the error of a product of them."""

from __future__ import annotations

import numpy as np

from tests.engines_under_test import Array


def random_floats(rng: np.random.Generator, *shape: int) -> Array:
    """Return standard normal float32 values."""
    return rng.standard_normal(shape).astype(np.float32)


def check_close(got: Array, want: Array, terms: int) -> None:
    """Check float32 sums of `terms` products against float64; their errors grow with
    the root of the count.
    """
    assert float(np.abs(got - want).max()) < 1e-5 * max(1, terms) ** 0.5
