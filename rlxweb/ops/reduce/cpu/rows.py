"""Reductions along rows in a browser's Python, by WebAssembly."""

from __future__ import annotations

from functools import partial

import numpy as np

from rlxweb.ir.op import Attrs, registry
from rlxweb.ops.composed_row_kernel import Array, composed_row_kernel


def _reduce_by_numpy(op: str, attrs: Attrs, x: Array) -> Array:
    result: Array = registry.get(op).reference(np, attrs, x)
    return result


KERNELS = tuple(
    composed_row_kernel(
        op, partial(_reduce_by_numpy, op), min_share=32, feature="webassembly"
    )
    for op in ("sum", "mean", "max", "min", "prod")
)
