"""Quantized matmul: a product with packed weights of a few bits each and scales by
group.

Words of 32 bits lie as `rlxweb.core.quantized_weights` says. Engines of arrays unpack
some rows of weights at a time; kernels unpack in registers
(`wgsl.py`). Sums are of float32, of f64 in float64.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.core.quantized_weights import group_counts
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import Shape, bad_dtype, bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import MATMUL_TOLERANCE, widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.quantized.packed_methods import unpack_weights
from rlxweb.ops.quantized.wgsl import plan_quantized_matmul

MAX_UNPACKED_WEIGHTS = 1 << 22
"""Largest number of weights that array engines unpack at a time."""
MAX_CHUNKS = 64
# Products of a weight that cost as much as to unpack it, where that is memory's work.
PRODUCTS_PER_UNPACK = 16


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, words, *scales_and_biases = types
    require_dtypes((x,), FLOAT_DTYPES)
    require_dtypes(tuple(scales_and_biases), FLOAT_DTYPES)
    common_dtype(tuple(scales_and_biases))
    if words.dtype not in (DType.I32, DType.U32):
        problem = f"the words are {words.dtype}"
        raise bad_dtype(
            problem, "words must be i32 or u32", "pack the weights with rlxweb.quantize"
        )
    if x.rank < 1 or words.rank != 2:
        raise bad_shape(
            f"got x {format_shape(x.shape)} and words {format_shape(words.shape)}",
            "x must be [..., K] and words [N, words per row]",
        )
    k, n = x.shape[-1], words.shape[0]
    groups, count = group_counts(k, attrs["bits"], attrs["group_size"])
    if words.shape[1] != count:
        raise bad_shape(
            f"got words {format_shape(words.shape)} for x {format_shape(x.shape)}",
            f"{k} weights of {attrs['bits']} bits in groups of {attrs['group_size']} "
            f"require {count} words per row",
        )
    for name, operand in zip(("scales", "biases"), scales_and_biases, strict=False):
        if operand.shape != (n, groups):
            raise bad_shape(
                f"got {name} {format_shape(operand.shape)}",
                f"expected one value per group, {format_shape((n, groups))}",
            )
    return TensorType((*x.shape[:-1], n), x.dtype)


def _reference(
    xp: Any, attrs: Attrs, x: Any, words: Any, scales: Any, *biases: Any
) -> Any:
    wide = widen_float16(xp, x)
    n, k = words.shape[0], x.shape[-1]
    step = max(1, MAX_UNPACKED_WEIGHTS // max(1, k), -(-n // MAX_CHUNKS))
    chunks = []
    for start in range(0, max(n, 1), step):
        chunk = (
            operand[start : start + step, :] for operand in (words, scales, *biases)
        )
        weights = _unpack_rows(xp, attrs, wide.dtype, *chunk)[:, :k]
        chunks.append(xp.matmul(wide, xp.swapaxes(weights, 0, 1)))
    result = chunks[0] if len(chunks) == 1 else xp.concat(chunks, axis=-1)
    return xp.asarray(result, dtype=x.dtype)


def _unpack_rows(
    xp: Any, attrs: Attrs, dtype: Any, words: Any, scales: Any, *biases: Any
) -> Any:
    """Unpack the weights of some rows."""
    bits = attrs["bits"]
    wide, (n, groups) = xp.asarray(words, dtype=xp.int64), scales.shape
    codes = [
        xp.asarray(wide // (1 << shift) % (1 << bits), dtype=dtype)
        for shift in range(0, 32, bits)
    ]
    weights = xp.reshape(xp.stack(codes, axis=-1), (n, groups, attrs["group_size"]))
    scale, *bias = (
        xp.reshape(xp.asarray(operand, dtype=dtype), (n, groups, 1))
        for operand in (scales, *biases)
    )
    if bias:
        weights = weights * scale + bias[0]
    else:
        weights = (weights - (1 << (bits - 1))) * scale
    return xp.reshape(weights, (n, groups * attrs["group_size"]))


def _build(
    g: Graph, attrs: Attrs, x: Tensor, words: Tensor, *scales_and_biases: Tensor
) -> Tensor:
    (wide,) = widen_float16_tensors(g, x)
    scales_and_biases = tuple(
        g.cast(operand, wide.dtype) for operand in scales_and_biases
    )
    padded_weights = unpack_weights(g, words, *scales_and_biases, **attrs)
    k = x.shape[-1]
    weights = (
        padded_weights
        if padded_weights.shape[1] == k
        else g.narrow(padded_weights, 1, 0, k)
    )
    result = g.matmul(wide, g.transpose(weights, (1, 0)))
    return result if wide is x else g.cast(result, x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * out.numel * inputs[0].shape[-1]


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    """Describe the cost: every weight is unpacked, then used for each row of x; the
    bytes are packed ones.
    """
    weights = inputs[1].shape[0] * inputs[0].shape[-1]
    rows = out.numel // max(1, out.shape[-1])
    moved_bytes = sum(operand.nbytes for operand in (*inputs, out))
    cells = weights + weights * rows // PRODUCTS_PER_UNPACK
    return "quantized_matmul", {"cells": cells, "bytes": moved_bytes}


def _case(
    x: Shape,
    n: int,
    bits: int = 4,
    group_size: int = 32,
    *,
    biased: bool = True,
    dtype: DType = DType.F32,
    scales: DType | None = None,
    words_dtype: DType = DType.I32,
    note: str = "",
) -> Sample:
    groups, words = group_counts(x[-1], bits, group_size)
    max_code, scale_dtype = (1 << bits) - 1, scales or dtype
    inputs = [
        Drawn(x, dtype),
        Drawn((n, words), words_dtype, words_dtype.min_value, words_dtype.max_value),
        Drawn((n, groups), scale_dtype, 0.5 / max_code, 2.0 / max_code),
    ]
    if biased:
        inputs.append(Drawn((n, groups), scale_dtype, -1.0, 0.0))
    attrs = {"bits": bits, "group_size": group_size}
    return Sample(tuple(inputs), attrs, note)


_calibration_case = partial(_case, group_size=64)
_SAMPLES = (
    _case((1, 32), 1),
    _case((1, 64), 5, note="one row"),
    _case((64,), 7, note="a vector"),
    _case((3, 96), 10, 8),
    _case((3, 96), 10, 8, biased=False, note="codes from 128"),
    _case((2, 3, 128), 9, 4, 64, biased=False, note="codes from 8"),
    _case((5, 64), 6, 2, 16),
    _case((4, 50), 6, 4, 16, note="a part of a group"),
    _case((9, 50), 6, 8, 64, note="less than a group"),
    _case((2, 13), 3, 4, 8, biased=False, note="a part of a word"),
    _case((1, 1030), 9, 4, 32, note="a long row"),
    _case((70, 258), 67, 4, 32, note="many rows"),
    _case((40, 256), 131, 8, 64, biased=False),
    _case((0, 32), 3, note="no rows"),
    _case((2, 32), 0, note="no columns"),
    _case((2, 0), 3, note="nothing to sum: zeros"),
    _case((65_537, 8), 1, 4, 8, note="more rows than workgroups"),
    _case((3, 64), 6, words_dtype=DType.U32),
    _case((3, 64), 6, dtype=DType.F16),
    _case((3, 64), 6, scales=DType.F16, note="scales of f16"),
    _case((3, 64), 6, dtype=DType.F16, scales=DType.F32),
    _case((3, 64), 6, dtype=DType.F64),
)
registry.register_all(
    Op(
        name="quantized_matmul",
        arity=(3, 4),
        infer=_infer,
        reference=_reference,
        lower=Kernel(plan_quantized_matmul, Compose(_build)),
        attrs=(Attr("bits", "int", 4), Attr("group_size", "int", 64)),
        traits=frozenset({"blas"}),
        flops=_flops,
        work=_work,
        tolerance=MATMUL_TOLERANCE,
        samples=_SAMPLES,
        calibration_cases=(
            _calibration_case((1, 64), 64),
            _calibration_case((1, 1024), 1024),
            _calibration_case((32, 1024), 1024),
        ),
        doc="x [..., K] times the transpose of a matrix [N, K] whose weights of 2, 4 "
        "or 8 bits are packed into 32-bit words [N, W]. A weight is its code "
        "times the scale of its group plus the bias of its group; scales and "
        "biases are [N, G]. Without biases, a weight is (code - 2^(bits - 1)) "
        "times the scale.",
    )
)
