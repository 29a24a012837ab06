"""Indices of the nonzero elements of an array, padded to a given number of them.

How many there are only the run knows; a graph has a shape before it runs. So the bound
is stated, and `count_nonzero` says how many were there: more than the bound shows in
it. Composed of a running count and a search in it. Owns no shader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import row_major_strides
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_shape,
    format_shape,
    numel,
)
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.value_range_rules import Interval, RangeRule
from rlxweb.ops.sort.op import binary_search

_MAX_I32 = (1 << 31) - 1


def _infer(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    if not x.rank:
        raise bad_shape("a scalar (rank 0) has no indices", hint="reshape it to [1]")
    if x.numel > _MAX_I32:
        raise bad_shape(
            f"got {format_shape(x.shape)}, which has {x.numel:,} elements",
            f"i32 indices support at most {_MAX_I32:,} elements",
        )
    return TensorType((x.rank, attrs["size"]), DType.I32)


def _reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    shape, size, fill = tuple(x.shape), attrs["size"], attrs["fill"]
    if xp is np:
        indices = np.full((len(shape), size), fill, np.int32)
        flat_indices = np.flatnonzero(x)[:size]
        indices[:, : len(flat_indices)] = np.unravel_index(flat_indices, shape)
        return indices
    count = numel(shape)
    if not count or not size:
        return xp.full((len(shape), size), fill, dtype=xp.int32)
    hits = xp.asarray(xp.reshape(x, (count,)) != 0, dtype=xp.int32)
    running = xp.cumsum(hits, axis=0, dtype=xp.int32)
    ordinals = xp.asarray(xp.arange(size), dtype=xp.int32) + 1
    flat_indices = binary_search(xp, running, ordinals, is_right=False)
    rows = [
        xp.where(
            flat_indices < count,
            flat_indices // stride % n,
            xp.full_like(flat_indices, fill),
        )
        for n, stride in zip(shape, row_major_strides(shape), strict=True)
    ]
    return xp.asarray(xp.stack(rows, axis=0), dtype=xp.int32)


def _build(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    shape, size, fill = x.shape, attrs["size"], attrs["fill"]
    count = x.graph.node(x.id).type.numel
    if not count or not size:
        return g.constant(np.full((len(shape), size), fill, np.int32))
    elements = g.reshape(x, (count,))
    hits = elements if x.dtype is DType.BOOL else g.ne(elements, 0)
    running = g.cumsum(g.cast(hits, DType.I32))
    ordinals = g.constant(np.arange(1, size + 1, dtype=np.int32))
    flat_indices = g.apply("searchsorted", running, ordinals)
    rows = []
    for n, stride in zip(shape, row_major_strides(shape), strict=True):
        index = flat_indices if stride == 1 else g.floor_divide(flat_indices, stride)
        index = (
            index if index is flat_indices and n == count else g.mod(index, max(n, 1))
        )
        rows.append(g.where(g.lt(flat_indices, count), index, fill))
    return g.stack(rows, 0)


def _index_range(
    intervals: Any, types: Types, out: TensorType, attrs: Attrs
) -> Interval:
    """Return the range of the indices, fill value included."""
    fill = attrs["fill"]
    return min(fill, 0), max(fill, *types[0].shape)


def _case(shape: Shape, size: int, dtype: DType = DType.BOOL, fill: int = -1) -> Sample:
    inputs = Drawn(shape, dtype, -1, 1, whole=True)
    return Sample((inputs,), {"size": size, "fill": fill})


registry.register_all(
    Op(
        name="nonzero",
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        range_rule=RangeRule(_index_range, "exact"),
        attrs=(
            Attr("size", "int", at_least=0, at_most=_MAX_I32),
            Attr("fill", "int", -1, at_least=-_MAX_I32 - 1, at_most=_MAX_I32),
        ),
        samples=(
            _case((1,), 1),
            _case((13,), 20),
            _case((3, 5), 4, DType.F32),
            _case((2, 3, 5), 30, DType.I32, 7),
            _case((0, 5), 3),
            _case((4, 3), 0),
            _case((5, 7), 40, DType.U32),
            _case((33,), 40, DType.F16),
            _case((33,), 40, DType.I64),
            _case((65_537, 1), 70_000),
        ),
        doc="The indices [rank, size] (i32) of the elements that are not zero, in "
        "order: the first `size` of them, padded with `fill` if there are fewer.",
    ),
)
