"""Ops that are their operand, and say something of its derivative."""

from __future__ import annotations

from functools import partial

from rlxweb.ir import bounds
from rlxweb.ir.batching import together
from rlxweb.ir.derivative import flat, kept
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import View
from rlxweb.ir.op import Attr, Op, no_flops, one_type, registry, same_type
from rlxweb.ir.sample import Drawn, Sample

_SAMPLES = tuple(
    Sample((Drawn(shape, dtype, -9, 9),))
    for shape, dtype in (
        ((), DType.F32),
        ((0, 3), DType.F32),
        ((4, 7), DType.F32),
        ((65_537, 2), DType.F32),
        ((5,), DType.I32),
        ((6,), DType.F16),
        ((3,), DType.F64),
    )
)

_SEGMENT = Attr("segment", "int", 0)

_identity = partial(
    Op,
    infer=one_type,
    reference=lambda xp, attrs, x: x,
    lower=View(lambda layout, shape, attrs: layout),
    bounds=bounds.kept(0),
    traits=frozenset({"view"}),
    flops=no_flops,
    samples=_SAMPLES,
    unchanged=same_type,
    vjp=kept,
    batch=together,
)

registry.register_all(
    _identity(
        name="identity",
        doc="x, as a value of its own to differentiate by.",
    ),
    _identity(
        name="stop_gradient",
        vjp=flat,
        doc="x, which derivatives take for a constant.",
    ),
    _identity(
        name="segment_in",
        attrs=(_SEGMENT,),
        doc="x, where a part of a graph begins that a gradient computes again.",
    ),
    _identity(
        name="segment_out",
        attrs=(_SEGMENT,),
        doc="x, where such a part ends: what lies between is not kept for a gradient.",
    ),
    _identity(
        name="again",
        # Never dropped: what is computed of it would be what was computed before.
        unchanged=None,
        doc="x, to compute once more what was computed of it.",
    ),
)
