"""Where an array is not zero: as many places as are asked for, filled up.

How many there are only the run knows; a graph has a shape before it runs. So the bound
is stated, and `count_nonzero` says how many were there: more than the bound shows in
it. Composed of a running count and a search in it. Owns no shader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.ir.bounds import Bounds, Interval
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.layout import row_major
from rlxweb.ir.lowering import Compose
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_attribute, bad_shape, numel, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.sorting import search

_MOST = (1 << 31) - 1


def _infer(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    if not x.rank:
        raise bad_shape("rank 0 has no places", hint="reshape it to [1]")
    if x.numel > _MOST:
        raise bad_shape(f"{x.numel} places in {show(x.shape)}", f"i32 holds {_MOST}")
    if not 0 <= attrs["size"] <= _MOST:
        raise bad_attribute(f"size={attrs['size']}", f"0 <= size <= {_MOST}")
    if not -_MOST - 1 <= attrs["fill"] <= _MOST:
        raise bad_attribute(f"fill={attrs['fill']}", "it is an i32")
    return TensorType((x.rank, attrs["size"]), DType.I32)


def _reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    shape, size, fill = tuple(x.shape), attrs["size"], attrs["fill"]
    if xp is np:
        found = np.full((len(shape), size), fill, np.int32)
        flat = np.flatnonzero(x)[:size]
        found[:, : len(flat)] = np.unravel_index(flat, shape)
        return found
    count = numel(shape)
    if not count or not size:
        return xp.full((len(shape), size), fill, dtype=xp.int32)
    hits = xp.asarray(xp.reshape(x, (count,)) != 0, dtype=xp.int32)
    running = xp.cumsum(hits, axis=0, dtype=xp.int32)
    wanted = xp.asarray(xp.arange(size), dtype=xp.int32) + 1
    flat = search(xp, running, wanted, is_right=False)
    rows = [
        xp.where(flat < count, flat // step % n, xp.full_like(flat, fill))
        for n, step in zip(shape, row_major(shape), strict=True)
    ]
    return xp.asarray(xp.stack(rows, axis=0), dtype=xp.int32)


def _build(g: Graph, attrs: Attrs, x: Tensor) -> Tensor:
    shape, size, fill = x.shape, attrs["size"], attrs["fill"]
    count = x.graph.node(x.id).type.numel
    if not count or not size:
        return g.constant(np.full((len(shape), size), fill, np.int32))
    flat = g.reshape(x, (count,))
    hits = flat if x.dtype is DType.BOOL else g.ne(flat, 0)
    running = g.cumsum(g.cast(hits, DType.I32))
    wanted = g.constant(np.arange(1, size + 1, dtype=np.int32))
    found = g.apply("searchsorted", running, wanted)
    rows = []
    for n, step in zip(shape, row_major(shape), strict=True):
        at = found if step == 1 else g.floor_divide(found, step)
        at = at if at is found and n == count else g.mod(at, max(n, 1))
        rows.append(g.where(g.lt(found, count), at, fill))
    return g.stack(rows, 0)


def _reach(given: Any, types: Types, out: TensorType, attrs: Attrs) -> Interval:
    fill = attrs["fill"]
    return min(fill, 0), max(fill, *types[0].shape)


def _case(shape: Shape, size: int, dtype: DType = DType.BOOL, fill: int = -1) -> Sample:
    drawn = Drawn(shape, dtype, -1, 1, whole=True)
    return Sample((drawn,), {"size": size, "fill": fill})


registry.register_all(
    Op(
        name="nonzero",
        infer=_infer,
        reference=_reference,
        lower=Compose(_build),
        bounds=Bounds(_reach, "exact"),
        attrs=(Attr("size", "int"), Attr("fill", "int", -1)),
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
        doc="Where the elements that are not zero stand, [rank, size] (i32), in their "
        "order: the first `size` of them, `fill` where there are fewer.",
    ),
)
