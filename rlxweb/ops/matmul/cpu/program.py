"""Matrix products in native programs: one product for each matrix of a batch."""

from __future__ import annotations

from math import prod

import numpy as np

from rlxweb.codegen.data_movement_index_tables import view_from_table
from rlxweb.codegen.native_program_builder import (
    MAX_BATCH,
    MAX_MULTIPLICATIONS,
    NativeProgramBuilder,
)
from rlxweb.ir.graph import Node
from rlxweb.ir.op import Attrs, TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant


def _is_small(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Return whether a product is one of few matrices with few multiplications."""
    x, y = inputs
    if x.rank < 2 or y.rank < 2:
        return False
    batch = 1 if y.rank == 2 else prod(out.shape[:-2])
    return batch <= MAX_BATCH and out.numel * x.shape[-1] <= MAX_MULTIPLICATIONS


def add_matmul(builder: NativeProgramBuilder, node: Node) -> None:
    """Add a matrix product, one product for each matrix of the batch."""
    x, y = (builder.views[i] for i in node.inputs)
    a, b = x.table, y.table
    if b.ndim == 2:
        a = a.reshape(1, -1, a.shape[-1])
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.broadcast_to(a, (*shape, *a.shape[-2:])).reshape(-1, *a.shape[-2:])
    b = np.broadcast_to(b, (*shape, *b.shape[-2:])).reshape(-1, *b.shape[-2:])
    target = builder.allocate(node.type.numel)
    elements_per_matrix = target.size // max(1, len(a))
    result_tables = [
        builder.add_product(
            view_from_table(x.block, a_table),
            view_from_table(y.block, b_table),
            target,
            index * elements_per_matrix,
        )
        for index, (a_table, b_table) in enumerate(zip(a, b, strict=True))
    ]
    table = np.stack(result_tables).reshape(node.type.shape)
    builder.views[node.id] = view_from_table(target, table)


KERNELS = (
    KernelVariant("matmul, in a native program", "matmul", add_matmul, _is_small),
)
