"""Identity ops that steer differentiation: they return their operand unchanged."""

from __future__ import annotations

from functools import partial

from rlxweb.ir import value_range_rules
from rlxweb.ir.derivative import reshape_vjp, zero_vjp
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import View
from rlxweb.ir.op import Attr, Op, has_same_type, infer_same_type, no_flops, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.vmap_batching import batch_broadcast

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

_SEGMENT_ATTR = Attr("segment", "int", 0)

_identity_op = partial(
    Op,
    infer=infer_same_type,
    reference=lambda xp, attrs, x: x,
    lower=View(lambda layout, shape, attrs: layout),
    range_rule=value_range_rules.operand_hull(0),
    traits=frozenset({"view"}),
    flops=no_flops,
    samples=_SAMPLES,
    is_noop=has_same_type,
    vjp=reshape_vjp,
    batch=batch_broadcast,
)

registry.register_all(
    _identity_op(
        name="identity",
        doc="x, as a separate value with respect to which a graph can be "
        "differentiated.",
    ),
    _identity_op(
        name="stop_gradient",
        vjp=zero_vjp,
        doc="x, treated as a constant by derivatives.",
    ),
    _identity_op(
        name="segment_in",
        attrs=(_SEGMENT_ATTR,),
        doc="x; marks the start of a part of the graph that is recomputed for "
        "gradients.",
    ),
    _identity_op(
        name="segment_out",
        attrs=(_SEGMENT_ATTR,),
        doc="x; marks the end of a recomputed part: the values inside the part are "
        "not saved for gradients.",
    ),
    _identity_op(
        name="again",
        # Never dropped: what is computed of it would be what was computed before.
        is_noop=None,
        doc="x, as a new value: ops on it are computed again instead of reusing equal "
        "earlier results.",
    ),
)
