"""Forms of elementwise ops, reductions and selections in ONNX."""

from __future__ import annotations

import math

import numpy as np

from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.op import TensorType
from rlxweb.ir.shape import normal_axis
from rlxweb.onnx.writer import Writer, writes


@writes("maximum")
def _maximum(w: Writer, node: Node, x: str, y: str) -> str:
    return w.add("Max", x, y)


@writes("minimum")
def _minimum(w: Writer, node: Node, x: str, y: str) -> str:
    return w.add("Min", x, y)


@writes("pow")
def _pow(w: Writer, node: Node, x: str, y: str) -> str:
    return w.add("Pow", x, y)


@writes("ne")
def _ne(w: Writer, node: Node, x: str, y: str) -> str:
    return w.add("Not", w.add("Equal", x, y))


@writes("div")
def _div(w: Writer, node: Node, x: str, y: str) -> str:
    """An integer divided by 0 is 0 here; elsewhere it may end the process."""
    if node.type.dtype.is_float:
        return w.add("Div", x, y)
    zero, one = w.like(0, node.type), w.like(1, node.type)
    none = w.add("Equal", y, zero)
    found = w.add("Div", x, w.add("Where", none, one, y))
    return w.add("Where", none, zero, found)


@writes("cast")
def _cast(w: Writer, node: Node, x: str) -> str:
    """From floats to integers what is out of range, and NaN, is said by hand."""
    have, to = w.type_of(node), node.type.dtype
    if not (have.dtype.is_float and to.is_integer):
        return w.cast(x, to)
    bounds = np.iinfo(to.numpy)
    if have.dtype is DType.F16:
        x, have = w.cast(x, DType.F32), TensorType(have.shape, DType.F32)
    above = w.like(2.0 ** (bounds.bits - (bounds.min < 0)), have)
    fits = w.add("Less", x, above)
    down = w.add("Less", x, w.like(float(bounds.min), have))
    inside = w.add("And", fits, w.add("Not", down))
    whole = w.cast(w.add("Where", inside, x, w.like(0, have)), to)
    most = w.add("GreaterOrEqual", x, above)
    whole = w.add("Where", most, w.like(bounds.max, node.type), whole)
    return w.add("Where", down, w.like(bounds.min, node.type), whole)


@writes("rsqrt")
def _rsqrt(w: Writer, node: Node, x: str) -> str:
    return w.add("Reciprocal", w.add("Sqrt", x))


@writes("silu")
def _silu(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", x, w.add("Sigmoid", x))


@writes("swish")
def _swish(w: Writer, node: Node, x: str) -> str:
    inner = w.add("Mul", x, w.like(node.attrs["alpha"], node.type))
    return w.add("Mul", x, w.add("Sigmoid", inner))


@writes("gelu", "gelu_approx")
def _gelu(w: Writer, node: Node, x: str) -> str:
    kind = "none" if node.op == "gelu" else "tanh"
    return w.add("Gelu", x, approximate=kind)


@writes("trunc")
def _trunc(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", w.add("Sign", x), w.add("Floor", w.add("Abs", x)))


@writes("exp2")
def _exp2(w: Writer, node: Node, x: str) -> str:
    return w.add("Pow", w.like(2, node.type), x)


@writes("log2")
def _log2(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", w.add("Log", x), w.like(1 / math.log(2), node.type))


@writes("expm1")
def _expm1(w: Writer, node: Node, x: str) -> str:
    """Near 0 as 2 exp(x / 2) sinh(x / 2), which loses nothing there."""
    half = w.add("Mul", x, w.like(0.5, node.type))
    near = w.add("Mul", w.add("Exp", half), w.add("Sinh", half))
    near = w.add("Mul", near, w.like(2, node.type))
    far = w.add("Sub", w.add("Exp", x), w.like(1, node.type))
    is_near = w.add("Less", w.add("Abs", x), w.like(1, node.type))
    return w.add("Where", is_near, near, far)


@writes("log1p")
def _log1p(w: Writer, node: Node, x: str) -> str:
    """Near 0 as 2 atanh(x / (2 + x)), which loses nothing there."""
    ratio = w.add("Div", x, w.add("Add", x, w.like(2, node.type)))
    near = w.add("Mul", w.add("Atanh", ratio), w.like(2, node.type))
    far = w.add("Log", w.add("Add", x, w.like(1, node.type)))
    is_near = w.add("Less", w.add("Abs", x), w.like(0.5, node.type))
    return w.add("Where", is_near, near, far)


@writes("isinf")
def _isinf(w: Writer, node: Node, x: str) -> str:
    up, down = node.attrs["positive"], node.attrs["negative"]
    return w.add("IsInf", x, detect_positive=int(up), detect_negative=int(down))


@writes("isfinite")
def _isfinite(w: Writer, node: Node, x: str) -> str:
    return w.add("Not", w.add("Or", w.add("IsNaN", x), w.add("IsInf", x)))


@writes("fmod")
def _fmod(w: Writer, node: Node, x: str, y: str) -> str:
    return _remainder(w, node, x, y, 1)


@writes("mod")
def _mod(w: Writer, node: Node, x: str, y: str) -> str:
    """ONNX has Python's rest for integers alone."""
    if not node.type.dtype.is_float:
        return _remainder(w, node, x, y, 0)
    zero = w.like(0, node.type)
    rest = w.add("Mod", x, y, fmod=1)
    below = w.add("Xor", w.add("Less", rest, zero), w.add("Less", y, zero))
    is_some = w.add("Not", w.add("Equal", rest, zero))
    moved = w.add("Add", rest, y)
    return w.add("Where", w.add("And", below, is_some), moved, rest)


@writes("floor_divide")
def _floor_divide(w: Writer, node: Node, x: str, y: str) -> str:
    """(x - mod(x, y)) / y, which is whole; of floats rounded as NumPy does."""
    if node.type.dtype.is_float:
        whole = w.add("Div", w.add("Sub", x, _mod(w, node, x, y)), y)
        return w.add("Round", whole)
    return _div(w, node, w.add("Sub", x, _remainder(w, node, x, y, 0)), y)


@writes("atan2")
def _atan2(w: Writer, node: Node, y: str, x: str) -> str:
    """By the arc tangent of the smaller over the larger, turned to its octant."""
    kind = node.type
    zero = w.like(0, kind)
    up, right = w.add("Abs", y), w.add("Abs", x)
    steep = w.add("Greater", up, right)
    least, most = (w.add(op, up, right) for op in ("Min", "Max"))
    none = w.add("Equal", most, zero)
    ratio = w.add("Div", least, w.add("Where", none, w.like(1, kind), most))
    angle = w.add("Atan", ratio)
    turned = w.add("Sub", w.like(math.pi / 2, kind), angle)
    angle = w.add("Where", steep, turned, angle)
    back = w.add("Sub", w.like(math.pi, kind), angle)
    angle = w.add("Where", w.add("Less", x, zero), back, angle)
    return w.add("Where", w.add("Less", y, zero), w.add("Neg", angle), angle)


def _remainder(w: Writer, node: Node, x: str, y: str, fmod: int) -> str:
    if node.type.dtype.is_float:
        return w.add("Mod", x, y, fmod=fmod)
    zero, one = w.like(0, node.type), w.like(1, node.type)
    none = w.add("Equal", y, zero)
    rest = w.add("Mod", x, w.add("Where", none, one, y), fmod=fmod)
    return w.add("Where", none, zero, rest)


_REDUCED = {
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "prod": "ReduceProd",
}


@writes(*_REDUCED)
def _reduced(w: Writer, node: Node, x: str) -> str:
    """Of bools as numbers, which more engines have."""
    if node.type.dtype is DType.BOOL:
        return w.cast(_over_axes(w, node, w.cast(x, DType.I32)), DType.BOOL)
    return _over_axes(w, node, x)


def _over_axes(w: Writer, node: Node, x: str) -> str:
    axes = w.ints(*node.attrs["axes"])
    keep = int(node.attrs["keep_dim"])
    return w.add(_REDUCED[node.op], x, axes, keepdims=keep, noop_with_empty_axes=1)


@writes("argmax", "argmin")
def _placed(w: Writer, node: Node, x: str) -> str:
    """Of bools as numbers. Where a NaN stands ONNX leaves to the engine."""
    have = w.type_of(node)
    x = w.cast(x, DType.I32) if have.dtype is DType.BOOL else x
    op = "ArgMax" if node.op == "argmax" else "ArgMin"
    how = {
        "axis": normal_axis(node.attrs["axis"], have.rank),
        "keepdims": int(node.attrs["keep_dim"]),
        "select_last_index": int(node.attrs["last"]),
    }
    return w.cast(w.add(op, x, **how), DType.I32)


@writes("cumsum")
def _cumsum(w: Writer, node: Node, x: str) -> str:
    axis = normal_axis(node.attrs["axis"], node.type.rank)
    reverse = int(node.attrs.get("reverse", False))
    exclusive = int(node.attrs["exclusive"])
    at = w.hold(np.array(axis, np.int64))
    return w.add("CumSum", x, at, exclusive=exclusive, reverse=reverse)


@writes("cumprod")
def _cumprod(w: Writer, node: Node, x: str) -> str:
    """Each times the one half as far back again and again, where there is one."""
    kind = node.type
    axis = normal_axis(node.attrs["axis"], kind.rank)
    n, one = kind.shape[axis], w.like(1, kind)
    made = x

    def moved(steps: int) -> str:
        pads = w.ints(steps, -steps)
        return w.add("Pad", made, pads, one, w.ints(axis), mode="constant")

    steps = 1
    while steps < n:
        made = w.add("Mul", made, moved(steps))
        steps *= 2
    return moved(min(1, n)) if node.attrs["exclusive"] else made


@writes("topk")
def _topk(w: Writer, node: Node, x: str) -> str:
    k = w.ints(node.attrs["k"])
    return w.cast(w.several("TopK", 2, x, k, axis=-1)[1], DType.I32)


@writes("matmul")
def _matmul(w: Writer, node: Node, x: str, y: str) -> str:
    return w.add("MatMul", x, y)


@writes("shift_left", "shift_right")
def _shifted(w: Writer, node: Node, x: str, y: str) -> str:
    direction = "LEFT" if node.op == "shift_left" else "RIGHT"
    return w.add("BitShift", x, y, direction=direction)
