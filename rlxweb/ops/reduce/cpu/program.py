"""Sums and means in native programs: products with a constant vector."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from rlxweb.codegen.data_movement_index_tables import (
    IndexedView,
    MemoryBlock,
    view_from_table,
)
from rlxweb.codegen.native_program_builder import (
    MAX_MULTIPLICATIONS,
    NativeProgramBuilder,
)
from rlxweb.ir.graph import Node
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ir.shape_arithmetic import normalize_sorted_axes
from rlxweb.ops.kernel_variant import KernelVariant

_MAX_SUMMED: Final = 1 << 12
"""Maximum elements of a sum in single precision."""


def _is_small(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether few elements are summed, and few of them each time."""
    (x,) = inputs
    axes = normalize_sorted_axes(attrs["axes"], x.rank)
    count = prod(x.shape[axis] for axis in axes)
    return count <= _MAX_SUMMED and x.numel <= MAX_MULTIPLICATIONS


def add_reduction(builder: NativeProgramBuilder, node: Node) -> None:
    """Add a sum or mean, as a product with a constant vector."""
    view = builder.views[node.inputs[0]]
    axes = normalize_sorted_axes(node.attrs["axes"], len(view.shape))
    kept_axes = [axis for axis in range(len(view.shape)) if axis not in axes]
    count = prod(view.shape[axis] for axis in axes)
    table = view.table.transpose(*kept_axes, *axes).reshape(-1, count)
    weight = 1.0 / count if node.op == "mean" else 1.0
    ones = np.full(count, weight, np.float32)
    weights = IndexedView(MemoryBlock(count, constant=ones), (count, 1))
    target = builder.allocate(node.type.numel)
    result_table = builder.add_product(
        view_from_table(view.block, table), weights, target, 0
    )
    builder.views[node.id] = view_from_table(
        target, result_table.reshape(node.type.shape)
    )


KERNELS = tuple(
    KernelVariant(f"{op}, in a native program", op, add_reduction, _is_small)
    for op in ("sum", "mean")
)
