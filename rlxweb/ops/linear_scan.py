"""A linear recurrence of every channel by itself: s_t = a_t s_(t-1) + x_t.

What a selective scan and running averages come down to once their rates are known, and
what takes their gradients back: the same from the other end. The calls are laid out in
`linear_scan_calls.py`.
"""

from __future__ import annotations

from typing import Any

from rlxweb.errors import Unsupported
from rlxweb.ir.batching import folding
from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.cell_steps import CARRIED, MOST_UNROLLED
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32
from rlxweb.recipes.linear_scan_calls import linear_scan_recipe


def _infer(types: Types, attrs: Attrs) -> TensorType:
    same_dtype(types)
    need(types, FLOATS)
    x, a = types
    if x.rank != 3 or x.shape != a.shape:
        raise bad_shape(
            f"x {show(x.shape)} and a {show(a.shape)}", "both are [B, L, D]"
        )
    return x


def _order(length: int, attrs: Attrs) -> range:
    return range(length)[:: -1 if attrs["reverse"] else 1]


def _reference(xp: Any, attrs: Attrs, x: Any, a: Any) -> Any:
    wide, rates = widened(xp, x), widened(xp, a)
    length = x.shape[1]
    made: list[Any] = [None] * length
    s = None
    for t in _order(length, attrs):
        own = wide[:, t, :]
        s = own if s is None else rates[:, t, :] * s + own
        made[t] = s[:, None, :]
    found = xp.concat(made, axis=1) if made else wide
    return xp.asarray(found, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, a: Tensor) -> Tensor:
    """In f32 where it is f16, else step by step."""
    if x.dtype is DType.F16:
        return g.cast(g.apply("linear_scan", *in_f32(g, x, a), **attrs), DType.F16)
    length = x.shape[1]
    if length > MOST_UNROLLED:
        raise Unsupported(
            f"linear_scan of {length} steps",
            "it does not fit this device's bindings",
            f"up to {MOST_UNROLLED} steps are written out one by one",
            "cut the sequence and hand the state on",
        )
    made: list[Any] = [None] * length
    s: Tensor | None = None
    for t in _order(length, attrs):
        own = g.narrow(x, 1, t, 1)
        s = own if s is None else g.narrow(a, 1, t, 1) * s + own
        made[t] = s
    return g.concat(made, axis=1) if made else g.identity(x)


def _back(at: Taken) -> list[Tensor | None]:
    """The gradient of a state goes on to the one before, by the rate between them."""
    g, (x, a), reverse = at.g, at.inputs, at.attrs["reverse"]
    if not x.shape[1]:
        return [None, None]
    rates = moved_on(a, not reverse)
    by_x = g.apply("linear_scan", at.grad, rates, reverse=not reverse)
    by_a = by_x * moved_on(at.out, reverse) if at.wants[1] else None
    return [by_x, by_a]


def moved_on(x: Tensor, reverse: bool) -> Tensor:
    """[B, L, D] one step later, or earlier: 0 where nothing comes from."""
    one = (-1,) if reverse else (1,)
    back = tuple(-n for n in one)
    return x.graph.apply("pad", x, axes=(1,), before=one, after=back)


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    B, L, D = out.shape
    return "recurrence", {"steps": L, "m": B, "k": 1, "n": D, "calls": 4, "read": 0}


def _case(
    B: int, L: int, D: int, dtype: DType = DType.F32, note: str = "", **attrs: Any
) -> Sample:
    parts = (Drawn((B, L, D), dtype), Drawn((B, L, D), dtype, -1.0, 1.0))
    return Sample(parts, attrs, note)


registry.register_all(
    Op(
        name="linear_scan",
        arity=2,
        infer=_infer,
        reference=_reference,
        lower=Kernel(linear_scan_recipe, Compose(_build)),
        attrs=(Attr("reverse", "bool", False),),
        flops=lambda inputs, out, attrs: 2.0 * out.numel,
        tolerance=CARRIED,
        samples=(
            _case(1, 1, 1, note="one step"),
            _case(2, 9, 5),
            _case(2, 9, 5, reverse=True),
            _case(3, 40, 7, reverse=True),
            _case(2, 0, 5, note="no steps"),
            _case(0, 4, 5),
            _case(16_411, 2, 5, note="many rows"),
            _case(2, 3, 4, DType.F16),
            _case(2, 3, 4, DType.F64, reverse=True),
        ),
        work=_work,
        vjp=_back,
        batch=folding(0, 0),
        doc="s = a s + x, step by step along axis 1 of x and a [B, L, D], from 0 on; "
        "with `reverse`, from the last step back. The result is s of every step.",
    )
)
