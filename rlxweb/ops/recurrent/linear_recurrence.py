"""Linear recurrence whose channels are mixed by matrix products, as those of a
recurrent network are.

The derivative of a recurrent network is one, forwards through time as well as back: the
step is the cell's linear part at its state, which is the same for both directions but
for a transposition. So is the derivative of such a recurrence. `vjp.py`
says what the coefficients of a cell are; the kernels are planned in
`wgsl/linear_recurrence.py`.
"""

from __future__ import annotations

from collections.abc import Callable
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
from rlxweb.ops.recurrent.wgsl.linear_recurrence import plan_linear_steps

OP_NAME = "linear_recurrence"
MAX_STATE_PARTS, MAX_PRODUCTS = 4, 8


def _infer(types: Types, attrs: Attrs) -> TensorType:
    dtype = common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    x, _, weights, _ = types
    if x.rank != 4 or weights.rank != 2:
        raise bad_shape(
            f"got x {format_shape(x.shape)} and weights {format_shape(weights.shape)}",
            "x must be [steps, batch, parts, channels] and weights [channels, "
            "products · channels]",
        )
    T, B, m, H = x.shape
    G = weights.shape[1] // H if H else 1
    if not 1 <= m <= MAX_STATE_PARTS or not 1 <= G <= MAX_PRODUCTS:
        raise bad_shape(
            f"got {m} parts of the state and {G} products",
            f"expected 1 to {MAX_STATE_PARTS} parts and 1 to {MAX_PRODUCTS} products",
        )
    expected_shapes = {
        "coefficients": (T, B, m * m + G * m, H),
        "weights": (H, G * H),
        "state": (B, m, H),
    }
    for (name, expected), operand in zip(
        expected_shapes.items(), types[1:], strict=True
    ):
        if operand.shape != expected:
            raise bad_shape(
                f"got {name} {format_shape(operand.shape)}",
                f"expected {format_shape(expected)}",
            )
    return TensorType((T + 1, B, m, H), dtype)


def _run_steps(
    xp: Any,
    attrs: Attrs,
    operands: tuple[Any, ...],
    sum_axis: Callable[[Any, int], Any],
) -> list[Any]:
    """Return the state sum of every step, then the last state, over arrays or over
    tensors.

    xp     the namespace, or the graph
    sum_axis  the sum along an axis
    """
    x, coefs, weights, state = operands
    T, B, m, H = x.shape
    G = coefs.shape[2] // m - m
    states: list[Any] = [None] * T
    if attrs["transposed"]:
        weights = xp.swapaxes(weights, 0, 1)
    for t in range(T)[:: -1 if attrs["reverse"] else 1]:
        states[t] = p = state + x[t]
        state_coefs = xp.reshape(coefs[t][:, : m * m], (B, m, m, H))
        product_coefs = xp.reshape(coefs[t][:, m * m :], (B, G, m, H))
        if attrs["transposed"]:
            product_input = sum_axis(product_coefs * xp.reshape(p, (B, 1, m, H)), 2)
            products = xp.reshape(product_input, (B, G * H)) @ weights
            state = sum_axis(state_coefs * xp.reshape(p, (B, m, 1, H)), 1)
            first = state[:, :1] + xp.reshape(products, (B, 1, H))
            state = xp.concat([first, state[:, 1:]], axis=1) if m > 1 else first
        else:
            products = xp.reshape(p[:, 0] @ weights, (B, G, 1, H))
            state = sum_axis(state_coefs * xp.reshape(p, (B, 1, m, H)), 2)
            state = state + sum_axis(product_coefs * products, 1)
    return [*states, state]


def _reference(xp: Any, attrs: Attrs, *operands: Any) -> Any:
    wide = tuple(widen_float16(xp, operand) for operand in operands)
    states = _run_steps(xp, attrs, wide, lambda x, axis: xp.sum(x, axis=axis))
    return xp.asarray(xp.stack(states), dtype=operands[0].dtype)


def _build(g: Graph, attrs: Attrs, *operands: Tensor) -> Tensor:
    """Unroll the recurrence step by step, in f32 where it is f16."""
    if operands[0].dtype is DType.F16:
        return g.cast(
            g.apply(OP_NAME, *widen_float16_tensors(g, *operands), **attrs), DType.F16
        )
    T, B, m, H = operands[0].shape
    if T > MAX_UNROLLED_STEPS:
        raise Unsupported(
            f"{OP_NAME} of {T} steps and {H} channels",
            "the state does not fit this device's workgroup memory or bindings, so "
            "the steps must be unrolled",
            f"at most {MAX_UNROLLED_STEPS} steps can be unrolled",
            "split the sequence, and pass the last state of each part to the next",
        )
    states = _run_steps(g, attrs, operands, g.sum)
    return g.concat([g.reshape(state, (1, B, m, H)) for state in states], axis=0)


def preceding_states(x: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """Return the state before each step of [T, …]; that of the first step is
    `first`.
    """
    g, T = x.graph, x.shape[0]
    start = g.reshape(first, (1, *first.shape))
    if reverse:
        return g.concat([g.narrow(x, 0, 1, T - 1), start], axis=0)
    return g.concat([start, g.narrow(x, 0, 0, T - 1)], axis=0)


def _vjp(ctx: VjpContext) -> list[Tensor | None]:
    """Differentiate by the same recurrence, run from the other end and transposed.

    A step's coefficients and weights lie between what comes in (p, of which the first
    part goes through the products) and the gradient of what goes out (q): of a
    transposed one the two change places.
    """
    g, (x, coefs, weights, _), out = ctx.g, ctx.inputs, ctx.out
    T, B, m, H = x.shape
    G = coefs.shape[2] // m - m
    reverse, transposed = ctx.attrs["reverse"], ctx.attrs["transposed"]
    if not T:
        return [None, None, None, ctx.grad[0]]
    # The gradient of what follows a step: of the last one that of the last state.
    next_grads = preceding_states(ctx.grad[:T], ctx.grad[T], not reverse)
    zeros = g.expand(g.constant(0, x.dtype), (B, m, H))
    options: dict[str, Any] = {"reverse": not reverse, "transposed": not transposed}
    adjoint = g.apply(OP_NAME, next_grads, coefs, weights, zeros, **options)
    q, p = adjoint[:T], out[:T]
    grad_state = ctx.grad[T - 1 if reverse else 0] + adjoint[T]
    grad_x = preceding_states(q, grad_state, reverse)
    if not any(ctx.needs_grad[1:3]):
        return [grad_x, None, None, grad_state]
    source, target = (q, p) if transposed else (p, q)
    product_input = source[:, :, 0]
    products = g.reshape(product_input @ weights, (T, B, G, 1, H))
    target_parts = g.reshape(target, (T, B, 1, m, H))
    grad_state_coefs = g.reshape(target, (T, B, m, 1, H)) * g.reshape(
        source, (T, B, 1, m, H)
    )
    coef_grads = [grad_state_coefs, products * target_parts]
    grad_coefs = g.concat(
        [g.reshape(coef_grad, (T, B, -1, H)) for coef_grad in coef_grads], axis=2
    )
    product_coefs = g.reshape(coefs[:, :, m * m :], (T, B, G, m, H))
    product_grads = g.reshape(g.sum(product_coefs * target_parts, 3), (T * B, G * H))
    grad_weights = (
        g.transpose(g.reshape(product_input, (T * B, H)), (1, 0)) @ product_grads
    )
    return [grad_x, grad_coefs, grad_weights, grad_state]


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    T, B, _, H = inputs[0].shape
    return 2.0 * T * B * H * (inputs[1].shape[2] + inputs[2].shape[1])


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    """Describe the recurrence as a product at every step and a few dispatches."""
    T, B, _, H = inputs[0].shape
    size = {"m": B, "k": H, "n": inputs[2].shape[1]}
    read = inputs[2].numel * inputs[2].dtype.nbytes
    return "recurrence", {"steps": T, "calls": 16, "read": read, **size}


def _case(
    sizes: tuple[int, int, int, int, int],
    dtype: DType = DType.F32,
    note: str = "",
    **attrs: Any,
) -> Sample:
    """Return a sample of sizes (T, B, m, H, G)."""
    T, B, m, H, G = sizes
    inputs = (
        Drawn((T, B, m, H), dtype),
        Drawn((T, B, m * m + G * m, H), dtype, -0.5, 0.5),
        Drawn((H, G * H), dtype, -0.5, 0.5),
        Drawn((B, m, H), dtype),
    )
    return Sample(inputs, attrs, note)


registry.register_all(
    Op(
        name=OP_NAME,
        arity=4,
        infer=_infer,
        reference=_reference,
        lower=Kernel(plan_linear_steps, Compose(_build), transposable_inputs=(2,)),
        attrs=(Attr("reverse", "bool", False), Attr("transposed", "bool", False)),
        flops=_flops,
        tolerance=RECURRENT_TOLERANCE,
        samples=(
            _case((1, 1, 1, 1, 1), note="one step"),
            _case((5, 3, 2, 4, 4)),
            _case((5, 3, 2, 4, 4), transposed=True),
            _case((4, 2, 1, 5, 3), reverse=True),
            _case((4, 2, 1, 5, 3), reverse=True, transposed=True),
            _case((3, 2, 3, 7, 2), reverse=True, transposed=True),
            _case((4, 2, 2, 40, 1), transposed=True),
            _case((0, 2, 2, 3, 1), note="no steps: only the state"),
            _case((2, 8209, 2, 2, 1), transposed=True, note="many rows"),
            _case((3, 2, 2, 3, 2), DType.F16),
            _case((3, 2, 2, 3, 2), DType.F64, transposed=True),
        ),
        work=_work,
        vjp=_vjp,
        batch=merge_batch_rule(1, 1, None, 0, out=1),
        doc="The linear recurrence behind the derivative of a recurrent network. The "
        "operand state [B, m, H] is the first state: m parts for each of H channels. "
        "A step adds its part of x [T, B, m, H] to the state, and this sum is the "
        "result of the step. The coefficients [T, B, m·m + G·m, H] then mix the sum "
        "into the next state: m·m coefficients combine the parts of a channel; the "
        "other G·m scale the G products of the first part and the weights [H, G·H], "
        "and the scaled products are added to each part. The attribute `transposed` "
        "applies the transpose of this mixing; `reverse` runs from the last step to "
        "the first. The result [T + 1, B, m, H] ends with the last state.",
    )
)
