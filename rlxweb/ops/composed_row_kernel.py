"""CPU kernels of ops along rows, generated from what the ops are composed of.

What a softmax or a norm computes is said once, by the `Compose` of its record; its code
on processors and in WebAssembly is that of any fused row reduction
(`codegen/native_row_reduction.py`). A sum or a maximum is a row reduction of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

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
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape_arithmetic import normalize_sorted_axes
from rlxweb.ops.kernel_variant import KernelVariant

Array: TypeAlias = NDArray[Any]
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


def composed_row_kernel(
    op: str,
    fallback: Callable[..., Array],
    min_share: int = 1,
    feature: str | None = None,
) -> KernelVariant:
    """Return the kernel of an op along the last axis or axes, for float32.

    fallback   (attrs, *arrays) → array, for as long as nothing is compiled
    min_share  how many times `MIN_ELEMENTS` it needs, as NumPy takes fewer calls
    feature    of the processor, as of a `KernelVariant`
    """

    def is_supported(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
        is_large = inputs[0].numel >= min_share * MIN_ELEMENTS
        return is_large and _rows_of(op, inputs, attrs) is not None

    def build(
        inputs: Types, out: TensorType, attrs: Attrs
    ) -> Callable[..., Array] | None:
        composed = _rows_of(op, inputs, attrs)
        if composed is None:
            return None
        by_numpy = partial(fallback, attrs)
        return RowKernelCall(composed.rows, by_numpy, composed.operands)

    name, dtypes = f"{op}, as a row kernel", frozenset({DType.F32})
    return KernelVariant(name, op, build, is_supported, feature, dtypes)


def row_function(op: str, inputs: Types, attrs: Attrs) -> Callable[..., Array]:
    """Return an op along the last axis as a function (attrs, *arrays) → array: compiled
    code where there is some.
    """
    reference = partial(registry.get(op).reference, np)
    kernel = composed_row_kernel(op, reference)
    is_compiled = kernel.can_run(inputs, inputs[0], attrs)
    call = kernel.build(inputs, inputs[0], attrs) if is_compiled else None
    return call or reference


def _rows_of(op: str, inputs: Types, attrs: Attrs) -> _ComposedRows | None:
    shape, rank = inputs[0].shape, inputs[0].rank
    is_float32 = all(operand.dtype is DType.F32 for operand in inputs)
    if not (rank and is_float32 and row_kernels.is_enabled):
        return None
    axes = attrs["axes"] if "axes" in attrs else (attrs["axis"],)
    row_axes = normalize_sorted_axes(axes, rank)
    if row_axes != tuple(range(rank - len(row_axes), rank)):
        return None
    if prod(shape[axis] for axis in row_axes) < _MIN_ROW_LENGTH:
        return None
    return _compose_rows(op, tuple(inputs), tuple(sorted(attrs.items())))


@lru_cache(maxsize=256)
def _compose_rows(
    op: str, inputs: Types, attrs: tuple[tuple[str, Any], ...]
) -> _ComposedRows | None:
    """Return the row kernel of an op on operands of these types; None if it is none
    that can be compiled.
    """
    graph = Graph(op)
    operands = [graph.input(f"x{k}", t.shape, t.dtype) for k, t in enumerate(inputs)]
    lower = registry.get(op).lower
    compose = registry.get(op).decomposition
    if isinstance(lower, Kernel | Compose) and lower.reduction:
        result = graph.apply(op, *operands, **dict(attrs))
    elif compose is not None:
        result = compose.build(graph, dict(attrs), *operands)
    else:
        return None
    graph.set_outputs([result])
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
