"""Powers and roots of p-norms, with finite derivatives where elements or sums are 0.

A norm has a kink where all of its elements are 0. Its slope there is 0, the shortest of
the subgradients, as in PyTorch; the plain root would give infinity times 0.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from rlxweb.ir.tensor import Tensor

if TYPE_CHECKING:
    from rlxweb.ir.graph import Graph


def absolute_power(g: Graph, x: Tensor, p: float) -> Tensor:
    """Return |x|^p with slope 0 where x is 0.

    Even powers are powers of x², which has no kink.
    """
    if p == 2:
        return x * x
    if p == 1:
        return g.abs(x)
    if p > 0 and p % 2 == 0:
        return g.pow(x * x, p / 2)
    # The power may be infinitely steep at 0, and is of 1 where 0 is selected instead.
    is_zero = x.eq(0)
    power = g.pow(g.where(is_zero, 1, g.abs(x)), p)
    return g.where(is_zero, 0.0 if p > 0 else inf, power)


def norm_root(g: Graph, sums: Tensor, p: float = 2.0) -> Tensor:
    """Return sums^(1 / p) with slope 0 where a sum is 0."""
    if p == 1:
        return sums
    is_zero = sums.eq(0)
    nonzero_sums = g.where(is_zero, 1, sums)
    root = g.sqrt(nonzero_sums) if p == 2 else g.pow(nonzero_sums, 1.0 / p)
    return g.where(is_zero, 0.0 if p > 0 else inf, root)
