"""Linear recurrence of every channel by itself: s_t = a_t s_(t-1) + x_t.

What a selective scan and running averages come down to once their rates are known, and
what takes their gradients back: the same from the other end. The kernels are planned
in `wgsl/linear_scan.py`.
"""

from __future__ import annotations

from typing import Any

from rlxweb.core.errors import Unsupported
from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import merge_batch_rule
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.recurrent.steps import MAX_UNROLLED_STEPS, RECURRENT_TOLERANCE
from rlxweb.ops.recurrent.wgsl.linear_scan import plan_linear_scan


def _infer(types: Types, attrs: Attrs) -> TensorType:
    common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    x, a = types
    if x.rank != 3 or x.shape != a.shape:
        raise bad_shape(
            f"got x {format_shape(x.shape)} and a {format_shape(a.shape)}",
            "both must be [B, L, D]",
        )
    return x


def _step_order(length: int, attrs: Attrs) -> range:
    return range(length)[:: -1 if attrs["reverse"] else 1]


def _reference(xp: Any, attrs: Attrs, x: Any, a: Any) -> Any:
    wide, rates = widen_float16(xp, x), widen_float16(xp, a)
    length = x.shape[1]
    states: list[Any] = [None] * length
    s = None
    for t in _step_order(length, attrs):
        step_input = wide[:, t, :]
        s = step_input if s is None else rates[:, t, :] * s + step_input
        states[t] = s[:, None, :]
    result = xp.concat(states, axis=1) if states else wide
    return xp.asarray(result, dtype=x.dtype)


def _build(g: Graph, attrs: Attrs, x: Tensor, a: Tensor) -> Tensor:
    """Unroll the scan step by step, in f32 where it is f16."""
    if x.dtype is DType.F16:
        return g.cast(
            g.apply("linear_scan", *widen_float16_tensors(g, x, a), **attrs), DType.F16
        )
    length = x.shape[1]
    if length > MAX_UNROLLED_STEPS:
        raise Unsupported(
            f"linear_scan of {length} steps",
            "the scan does not fit this device's bindings, so the steps must be "
            "unrolled",
            f"at most {MAX_UNROLLED_STEPS} steps can be unrolled",
            "split the sequence into parts; to the first step of x in each later "
            "part, add the first rate a of that part times the last state of the "
            "part before it",
        )
    states: list[Any] = [None] * length
    s: Tensor | None = None
    for t in _step_order(length, attrs):
        step_input = g.narrow(x, 1, t, 1)
        s = step_input if s is None else g.narrow(a, 1, t, 1) * s + step_input
        states[t] = s
    return g.concat(states, axis=1) if states else g.identity(x)


def _vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Differentiate by a scan from the other end, with the rates shifted by one
    step.
    """
    g, (x, a), reverse = ctx.g, ctx.inputs, ctx.attrs["reverse"]
    if not x.shape[1]:
        return [None, None]
    rates = shift_steps(a, not reverse)
    grad_x = g.apply("linear_scan", ctx.grad, rates, reverse=not reverse)
    grad_a = grad_x * shift_steps(ctx.out, reverse) if ctx.needs_grad[1] else None
    return [grad_x, grad_a]


def shift_steps(x: Tensor, reverse: bool) -> Tensor:
    """Shift [B, L, D] by one step, later or earlier, and fill with 0."""
    front_pad = (-1,) if reverse else (1,)
    end_pad = tuple(-n for n in front_pad)
    return x.graph.apply("pad", x, axes=(1,), before=front_pad, after=end_pad)


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    B, L, D = out.shape
    return "recurrence", {"steps": L, "m": B, "k": 1, "n": D, "calls": 4, "read": 0}


def _case(
    B: int, L: int, D: int, dtype: DType = DType.F32, note: str = "", **attrs: Any
) -> Sample:
    inputs = (Drawn((B, L, D), dtype), Drawn((B, L, D), dtype, -1.0, 1.0))
    return Sample(inputs, attrs, note)


registry.register_all(
    Op(
        name="linear_scan",
        arity=2,
        infer=_infer,
        reference=_reference,
        lower=Kernel(plan_linear_scan, Compose(_build)),
        attrs=(Attr("reverse", "bool", False),),
        flops=lambda inputs, out, attrs: 2.0 * out.numel,
        tolerance=RECURRENT_TOLERANCE,
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
        vjp=_vjp,
        batch=merge_batch_rule(0, 0),
        doc="The scan s = a s + x along axis 1 of x and a [B, L, D], starting at 0; "
        "with `reverse` it runs from the last step to the first. The result holds "
        "s of every step.",
    )
)
