"""NumPy kernel of top-k: a partition in place of a sort."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.op import Attrs
from rlxweb.ops.kernel_variant import KernelVariant, for_every_node
from rlxweb.ops.welch.cpu.strongest_bins import has_long_float_rows, strongest_bins

Array = NDArray[Any]


def _topk(attrs: Attrs, x: Array) -> Array:
    """Return the indices of the k largest values."""
    n, k = x.shape[-1], attrs["k"]
    bins, _ = strongest_bins(x.reshape(-1, n), k)
    return bins.reshape(*x.shape[:-1], k).astype(np.int32)


KERNELS = (
    KernelVariant(
        "topk, partition", "topk", for_every_node(_topk), has_long_float_rows
    ),
)
