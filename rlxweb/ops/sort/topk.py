"""The op `topk`: indices of the largest values of each row."""

from __future__ import annotations

from typing import Any

from rlxweb.ir import value_range_rules
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import Kernel, KernelPlan
from rlxweb.ir.op import (
    Attr,
    Attrs,
    Op,
    TensorType,
    Types,
    registry,
)
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import (
    Shape,
    bad_attribute,
    bad_shape,
    format_shape,
    numel,
)
from rlxweb.ir.vmap_batching import batch_broadcast
from rlxweb.ops.array_dtype_checks import is_float
from rlxweb.ops.elementwise.op import NUMERIC_DTYPES, require_dtypes
from rlxweb.ops.sort.wgsl.serial_topk import (
    plan_topk,
)


def _infer_topk(types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types, NUMERIC_DTYPES)
    shape, k = types[0].shape, attrs["k"]
    if not shape:
        raise bad_shape("a scalar (rank 0) has no last axis", hint="reshape it to [1]")
    if not 1 <= k <= shape[-1]:
        raise bad_attribute(
            f"k={k}",
            f"expected 1 <= k <= {shape[-1]}, the length of the last axis of "
            f"{format_shape(shape)}",
        )
    return TensorType((*shape[:-1], k), DType.I32)


def _descending_order(xp: Any, x: Any) -> Any:
    """Return the indices that sort floats in descending order, stable, NaN last."""
    return xp.argsort(-x, axis=-1, stable=True)


def _topk_reference(xp: Any, attrs: Attrs, x: Any) -> Any:
    # Sorting the reversed line and reversing the result keeps equal values in order.
    n = x.shape[-1]
    if is_float(xp, x):
        # NumPy sorts NaN above every number; here it stands behind, as in power_peaks.
        return xp.asarray(_descending_order(xp, x)[..., : attrs["k"]], dtype=xp.int32)
    order = xp.argsort(xp.flip(x, axis=-1), axis=-1, stable=True)
    order = xp.flip(order, axis=-1)[..., : attrs["k"]]
    return xp.asarray(n - 1 - order, dtype=xp.int32)


def _plan_topk(types: Types, out: TensorType, attrs: Attrs) -> KernelPlan:
    x = types[0]
    return plan_topk(numel(x.shape[:-1]), x.shape[-1], attrs["k"], x.dtype)


def _topk_case(
    shape: Shape,
    k: int,
    dtype: DType = DType.F32,
    max_value: float = 9,
    whole: bool = True,
) -> Sample:
    low = 0 if dtype.is_unsigned else -max_value
    return Sample((Drawn(shape, dtype, low, max_value, whole),), {"k": k})


registry.register_all(
    Op(
        name="topk",
        infer=_infer_topk,
        reference=_topk_reference,
        lower=Kernel(_plan_topk),
        range_rule=value_range_rules.range_up_to(
            0, lambda types, attrs: types[0].shape[-1] - 1
        ),
        attrs=(Attr("k", "int"),),
        traits=frozenset({"reduction"}),
        flops=lambda inputs, out, attrs: float(inputs[0].numel),
        samples=(
            _topk_case((1,), 1),
            _topk_case((13,), 13),
            _topk_case((13,), 4, max_value=1000, whole=False),
            _topk_case((3, 50), 7),
            _topk_case((997,), 510, max_value=1000, whole=False),
            _topk_case((2, 3, 17), 2),
            _topk_case((0, 5), 2),
            _topk_case((65_537, 2), 1),
            _topk_case((2, 5003), 16, max_value=1e6, whole=False),
            _topk_case((2, 5003), 16),
            _topk_case((1, 100_003), 5, max_value=50),
            _topk_case((4, 33), 5, DType.I32, 3),
            _topk_case((4, 33), 5, DType.I32, (1 << 31) - 1),
            _topk_case((4, 33), 5, DType.U32, (1 << 32) - 1),
            _topk_case((4, 33), 5, DType.F16),
            _topk_case((4, 33), 5, DType.F64),
            _topk_case((4, 33), 5, DType.I64),
            _topk_case((4, 33), 5, DType.U64),
        ),
        calibration_cases=(
            _topk_case((128, 1024), 8, DType.I32),
            *(_topk_case(s, 8, whole=False) for s in ((4, 16), (128, 1024))),
        ),
        batch=batch_broadcast,
        doc="The indices (i32) of the `k` largest values of each row (along the last "
        "axis), largest first; among equal values the smaller index comes first, and "
        "NaN comes after every number.",
    )
)
