"""A product with weights that stay packed: a few bits each, scales by group.

Words of 32 bits lie as `rlxweb.packed_weights` says. Engines of arrays unpack some rows
of weights at a time; kernels unpack in registers (`packed_calls.py`). Sums are of
float32, of f64 in float64.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.packed_builder import unpacked
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import Shape, bad_dtype, bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import SUMMED, widened
from rlxweb.ops.norm import in_f32
from rlxweb.packed_weights import groups_of
from rlxweb.recipes.packed_calls import quantized_recipe

AT_ONCE = 1 << 22
"""Weights that an engine of arrays has unpacked at a time."""
MOST_PARTS = 64
# Products of a weight that cost as much as to unpack it, where that is memory's work.
UNPACKED = 16


def _infer(types: Types, attrs: Attrs) -> TensorType:
    x, words, *sides = types
    need((x,), FLOATS)
    need(tuple(sides), FLOATS)
    same_dtype(tuple(sides))
    if words.dtype not in (DType.I32, DType.U32):
        what = f"the words are {words.dtype}"
        raise bad_dtype(what, "they are i32 or u32", "see rlxweb.quantize")
    if x.rank < 1 or words.rank != 2:
        raise bad_shape(
            f"x {show(x.shape)} and words {show(words.shape)}",
            "x is [..., K] and words [N, W]",
        )
    k, n = x.shape[-1], words.shape[0]
    groups, count = groups_of(k, attrs["bits"], attrs["group_size"])
    if words.shape[1] != count:
        raise bad_shape(
            f"words {show(words.shape)} for x {show(x.shape)}",
            f"{k} weights of {attrs['bits']} bits in groups of {attrs['group_size']} "
            f"are {count} words a row",
        )
    for name, one in zip(("scales", "biases"), sides, strict=False):
        if one.shape != (n, groups):
            raise bad_shape(
                f"{name} {show(one.shape)}", f"one for each group, {show((n, groups))}"
            )
    return TensorType((*x.shape[:-1], n), x.dtype)


def _reference(
    xp: Any, attrs: Attrs, x: Any, words: Any, scales: Any, *biases: Any
) -> Any:
    wide = widened(xp, x)
    n, k = words.shape[0], x.shape[-1]
    step = max(1, AT_ONCE // max(1, k), -(-n // MOST_PARTS))
    made = []
    for at in range(0, max(n, 1), step):
        given = (one[at : at + step, :] for one in (words, scales, *biases))
        w = _floats(xp, attrs, wide.dtype, *given)[:, :k]
        made.append(xp.matmul(wide, xp.swapaxes(w, 0, 1)))
    whole = made[0] if len(made) == 1 else xp.concat(made, axis=-1)
    return xp.asarray(whole, dtype=x.dtype)


def _floats(
    xp: Any, attrs: Attrs, dtype: Any, words: Any, scales: Any, *biases: Any
) -> Any:
    """The weights of some rows."""
    bits = attrs["bits"]
    wide, (n, groups) = xp.asarray(words, dtype=xp.int64), scales.shape
    codes = [
        xp.asarray(wide // (1 << at) % (1 << bits), dtype=dtype)
        for at in range(0, 32, bits)
    ]
    cells = xp.reshape(xp.stack(codes, axis=-1), (n, groups, attrs["group_size"]))
    scale, *bias = (
        xp.reshape(xp.asarray(one, dtype=dtype), (n, groups, 1))
        for one in (scales, *biases)
    )
    if bias:
        cells = cells * scale + bias[0]
    else:
        cells = (cells - (1 << (bits - 1))) * scale
    return xp.reshape(cells, (n, groups * attrs["group_size"]))


def _build(g: Graph, attrs: Attrs, x: Tensor, words: Tensor, *sides: Tensor) -> Tensor:
    (wide,) = in_f32(g, x)
    sides = tuple(g.cast(one, wide.dtype) for one in sides)
    w, k = unpacked(g, words, *sides, **attrs), x.shape[-1]
    own = w if w.shape[1] == k else g.narrow(w, 1, 0, k)
    made = g.matmul(wide, g.transpose(own, (1, 0)))
    return made if wide is x else g.cast(made, x.dtype)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 2.0 * out.numel * inputs[0].shape[-1]


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    """Every weight is unpacked, and then used for each row of x; bytes are packed."""
    weights = inputs[1].shape[0] * inputs[0].shape[-1]
    rows = out.numel // max(1, out.shape[-1])
    moved = sum(one.nbytes for one in (*inputs, out))
    cells = weights + weights * rows // UNPACKED
    return "quantized_matmul", {"cells": cells, "bytes": moved}


def _case(
    x: Shape,
    n: int,
    bits: int = 4,
    group_size: int = 32,
    *,
    biased: bool = True,
    dtype: DType = DType.F32,
    scaled: DType | None = None,
    words_of: DType = DType.I32,
    note: str = "",
) -> Sample:
    groups, words = groups_of(x[-1], bits, group_size)
    top, kind = (1 << bits) - 1, scaled or dtype
    inputs = [
        Drawn(x, dtype),
        Drawn((n, words), words_of, words_of.least, words_of.most),
        Drawn((n, groups), kind, 0.5 / top, 2.0 / top),
    ]
    if biased:
        inputs.append(Drawn((n, groups), kind, -1.0, 0.0))
    attrs = {"bits": bits, "group_size": group_size}
    return Sample(tuple(inputs), attrs, note)


_large = partial(_case, group_size=64)
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
    _case((3, 64), 6, words_of=DType.U32),
    _case((3, 64), 6, dtype=DType.F16),
    _case((3, 64), 6, scaled=DType.F16, note="scales of f16"),
    _case((3, 64), 6, dtype=DType.F16, scaled=DType.F32),
    _case((3, 64), 6, dtype=DType.F64),
)
registry.register_all(
    Op(
        name="quantized_matmul",
        arity=(3, 4),
        infer=_infer,
        reference=_reference,
        lower=Kernel(quantized_recipe, Compose(_build)),
        attrs=(Attr("bits", "int", 4), Attr("group_size", "int", 64)),
        traits=frozenset({"blas"}),
        flops=_flops,
        work=_work,
        tolerance=SUMMED,
        samples=_SAMPLES,
        telling=(
            _large((1, 64), 64),
            _large((1, 1024), 1024),
            _large((32, 1024), 1024),
        ),
        doc="x [..., K] times the transpose of a matrix [N, K] whose weights are "
        "packed, 2, 4 or 8 bits each, into words [N, W] of 32: a weight is its code "
        "times the scale of its group plus the bias of it, scales and biases [N, G]. "
        "Without biases codes count from 2^(bits - 1).",
    )
)
