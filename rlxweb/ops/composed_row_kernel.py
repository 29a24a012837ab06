"""CPU kernels of ops along rows, generated from what the ops are composed of.

What a softmax or a norm computes is said once, by the `Compose` of its record; its code
on processors and in WebAssembly is that of any fused row reduction
(`codegen/native_row_reduction.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.native_row_reduction import (
    CompilableRowKernel,
    RowKernelCall,
    compilable_row_kernel,
    row_kernels,
)
from rlxweb.codegen.wasm_builder import IN_BROWSER
from rlxweb.core.errors import GraphError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import normalize_axis
from rlxweb.ops.cache_blocking import attr_axis, blocked_op
from rlxweb.ops.kernel_variant import KernelVariant

MIN_ELEMENTS: Final = 1 << (9 if IN_BROWSER else 11)
"""Elements from which one call of compiled code is faster than several NumPy calls."""
_MIN_ROW_LENGTH: Final = 4 if IN_BROWSER else 2
"""Elements of the shortest row: four are a vector of WebAssembly, and one is not
reduced.
"""


class _ComposedRows(NamedTuple):
    """Row kernel of an op, and which operand each of its reads is."""

    rows: CompilableRowKernel
    operands: tuple[int, ...]


def composed_row_kernel(op: str) -> KernelVariant:
    """Return the kernel of an op along the last axis, for float32."""
    return KernelVariant(
        f"{op}, as a row kernel",
        op,
        partial(_build, op),
        partial(_is_supported, op),
        dtypes=frozenset({DType.F32}),
    )


def row_function(op: str, inputs: Types, attrs: Attrs) -> Callable[..., NDArray[Any]]:
    """Return an op along the last axis as a function (attrs, *arrays) → array: compiled
    code where there is some.
    """
    is_compiled = _is_supported(op, inputs, inputs[0], attrs)
    call = _build(op, inputs, inputs[0], attrs) if is_compiled else None
    return call or partial(registry.get(op).reference, np)


def _is_supported(op: str, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    is_float32 = all(operand.dtype is DType.F32 for operand in inputs)
    is_large = row_kernels.is_enabled and out.numel >= MIN_ELEMENTS
    return is_float32 and is_large and _rows_of(op, inputs, attrs) is not None


def _build(
    op: str, inputs: Types, out: TensorType, attrs: Attrs
) -> Callable[..., NDArray[Any]] | None:
    composed = _rows_of(op, inputs, attrs)
    if composed is None:
        return None
    fallback = partial(blocked_op(op, attr_axis), attrs)
    return RowKernelCall(composed.rows, fallback, composed.operands)


def _rows_of(op: str, inputs: Types, attrs: Attrs) -> _ComposedRows | None:
    shape, rank = inputs[0].shape, inputs[0].rank
    is_long = rank > 0 and shape[-1] >= _MIN_ROW_LENGTH
    if not is_long or normalize_axis(attrs["axis"], rank) != rank - 1:
        return None
    return _compose_rows(op, tuple(inputs), tuple(sorted(attrs.items())))


@lru_cache(maxsize=256)
def _compose_rows(
    op: str, inputs: Types, attrs: tuple[tuple[str, Any], ...]
) -> _ComposedRows | None:
    """Return the row kernel of an op on operands of these types; None if it is none
    that can be compiled.
    """
    compose = registry.get(op).decomposition
    if compose is None:
        return None
    graph = Graph(op)
    operands = [graph.input(f"x{k}", t.shape, t.dtype) for k, t in enumerate(inputs)]
    graph.set_outputs([compose.build(graph, dict(attrs), *operands)])
    positions = {operand.id: k for k, operand in enumerate(operands)}
    ids = []
    for node in graph.nodes():
        # An operand in another shape has the same values in the same places.
        if node.op == "reshape" and node.inputs[0] in positions:
            positions[node.id] = positions[node.inputs[0]]
        elif node.id not in positions and not node.is_literal:
            ids.append(node.id)
    try:
        rows = compilable_row_kernel(graph, ids, any_size=True)
    except GraphError:  # it is no reduction along rows
        return None
    if rows is None:
        return None
    return _ComposedRows(rows, tuple(positions[i] for i, _ in rows.spec.kernel.reads))
