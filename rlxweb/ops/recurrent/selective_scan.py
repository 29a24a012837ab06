"""Selective scan of state-space models (Mamba): a recurrence with input-dependent
rates.

h_t = exp(delta_t a) h_(t-1) + delta_t x_t b_t and y_t = c_t · h_t, for each channel a
state of N numbers (Gu and Dao 2023, the discretisation of their equation 4 with b by
Euler, as their implementation has it). What stands around it (softplus of delta, skip,
gate) is elementwise and the builder's. The kernels are planned in
`wgsl/selective_scan.py`.
"""

from __future__ import annotations

from typing import Any

from rlxweb.core.errors import Unsupported
from rlxweb.ir.autodiff import compute_vjp
from rlxweb.ir.derivative import VjpContext
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape_arithmetic import bad_shape, format_shape
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import merge_batch_rule
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, common_dtype, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.recurrent.steps import MAX_UNROLLED_STEPS, RECURRENT_TOLERANCE
from rlxweb.ops.recurrent.wgsl.selective_scan import plan_selective_scan


def _infer(types: Types, attrs: Attrs) -> TensorType:
    dtype = common_dtype(types)
    require_dtypes(types, FLOAT_DTYPES)
    x, a = types[0], types[2]
    if x.rank != 3 or a.rank != 2 or not a.shape[1]:
        raise bad_shape(
            f"got x {format_shape(x.shape)} and a {format_shape(a.shape)}",
            "x must be [B, L, D], and operand a must be [D, N] with N at least 1",
        )
    (B, L, D), N = x.shape, a.shape[1]
    names = ("x", "delta", "a", "b", "c", "state")
    sizes = ((B, L, D), (B, L, D), (D, N), (B, L, N), (B, L, N), (B, N, D))
    for name, operand, expected in zip(names, types, sizes, strict=False):
        if operand.shape != expected:
            raise bad_shape(
                f"got {name} {format_shape(operand.shape)}",
                f"expected {format_shape(expected)}",
            )
    return TensorType((B, L + N, D), dtype)


def _reference(xp: Any, attrs: Attrs, *operands: Any) -> Any:
    x, delta, a, b, c, *state = (widen_float16(xp, operand) for operand in operands)
    (B, L, D), N = x.shape, a.shape[1]
    rates = xp.reshape(xp.swapaxes(a, 0, 1), (1, N, D))
    h = state[0] if state else xp.zeros((B, N, D), dtype=x.dtype)
    outputs = []
    for t in range(L):
        step = delta[:, t : t + 1, :]
        inflow = xp.reshape(b[:, t, :], (B, N, 1)) * (step * x[:, t : t + 1, :])
        h = xp.exp(step * rates) * h + inflow
        readout = xp.reshape(c[:, t, :], (B, 1, N))
        outputs.append(xp.matmul(readout, h))
    return xp.asarray(xp.concat([*outputs, h], axis=1), dtype=operands[0].dtype)


def _build(g: Graph, attrs: Attrs, *operands: Tensor) -> Tensor:
    """Build f16 scans in f32, and others step by step."""
    if operands[0].dtype is DType.F16:
        result = g.apply("selective_scan", *widen_float16_tensors(g, *operands))
        return g.cast(result, DType.F16)
    x, delta, a, b, c, *state = operands
    (B, L, D), N = x.shape, a.shape[1]
    if L > MAX_UNROLLED_STEPS:
        raise Unsupported(
            f"selective_scan of {L} steps and a state of {N} values per channel",
            "the state does not fit this device's registers or bindings, so the "
            "steps must be unrolled",
            f"at most {MAX_UNROLLED_STEPS} steps can be unrolled",
            "split the sequence, and pass the last state of each part to the next",
        )
    rates = g.reshape(g.transpose(a, (1, 0)), (1, N, D))
    h = state[0] if state else g.expand(g.constant(0.0, x.dtype), (B, N, D))
    steps: list[Tensor] = []
    for t in range(L):
        step = g.narrow(delta, 1, t, 1)
        column = g.reshape(g.narrow(b, 1, t, 1), (B, N, 1))
        h = g.exp(step * rates) * h + column * (step * g.narrow(x, 1, t, 1))
        steps.append(g.matmul(g.narrow(c, 1, t, 1), h))
    return g.concat([*steps, h], axis=1)


def _selective_scan_vjp(ctx: VjpContext) -> list[Tensor | None]:
    """VJP of the scan, through the states of all steps in one linear scan."""
    g = ctx.g
    if not ctx.x.shape[1]:  # the result is the state
        return [*[None] * 5, ctx.grad][: len(ctx.inputs)]
    leaves = [g.identity(operand) for operand in ctx.inputs]
    wrt = [leaf for leaf, needed in zip(leaves, ctx.needs_grad, strict=True) if needed]
    result = _build_with_all_states(g, *leaves)
    grads = iter(compute_vjp(g, [result], [ctx.grad], wrt, "selective_scan"))
    return [next(grads) if needed else None for needed in ctx.needs_grad]


def _build_with_all_states(g: Graph, *operands: Tensor) -> Tensor:
    """Build the op as elementwise work around a linear scan of size [B, L, N, D]."""
    x, delta, a, b, c, *state = widen_float16_tensors(g, *operands)
    (B, L, D), N = x.shape, a.shape[1]
    step = g.reshape(delta, (B, L, 1, D))
    decays = g.exp(step * g.transpose(a, (1, 0)))
    inflow = g.reshape(b, (B, L, N, 1)) * (step * g.reshape(x, (B, L, 1, D)))
    if state:  # as a step before the others; what it would decay by is of no account
        first = g.reshape(state[0], (B, 1, N, D))
        inflow = g.concat([first, inflow], axis=1)
        decays = g.concat([g.stop_gradient(first), decays], axis=1)
    scan_operands = (g.reshape(operand, (B, -1, N * D)) for operand in (inflow, decays))
    h = g.reshape(g.apply("linear_scan", *scan_operands), inflow.shape)
    steps = h[:, 1:] if state else h
    y = g.sum(g.reshape(c, (B, L, N, 1)) * steps, 2)
    result = g.concat([y, h[:, -1]], axis=1)
    return result if result.dtype is operands[0].dtype else g.cast(result, DType.F16)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 16.0 * inputs[0].numel * inputs[2].shape[1]


def _work_item(
    inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    """Return the work of the scan: each number of the state costs as much per step as
    some products.
    """
    (B, L, D), N = inputs[0].shape, inputs[2].shape[1]
    size = {"steps": L, "m": B, "k": 8 * N, "n": D}
    return "recurrence", {**size, "calls": 12, "read": 0}


def _case(
    sizes: tuple[int, int, int, int],
    state: bool = False,
    dtype: DType = DType.F32,
    note: str = "",
) -> Sample:
    """Return a sample of sizes (B, L, D, N)."""
    B, L, D, N = sizes
    inputs = [
        Drawn((B, L, D), dtype),
        Drawn((B, L, D), dtype, 0.01, 1.0),
        Drawn((D, N), dtype, -3.0, -0.1),
        Drawn((B, L, N), dtype),
        Drawn((B, L, N), dtype),
    ]
    inputs += [Drawn((B, N, D), dtype)] if state else []
    return Sample(tuple(inputs), note=note)


registry.register_all(
    Op(
        name="selective_scan",
        arity=(5, 6),
        infer=_infer,
        reference=_reference,
        lower=Kernel(plan_selective_scan, Compose(_build)),
        flops=_flops,
        tolerance=RECURRENT_TOLERANCE,
        samples=(
            _case((1, 1, 1, 1), True, note="one step"),
            _case((2, 9, 5, 3), True),
            _case((2, 9, 5, 3)),
            _case((3, 40, 7, 16)),
            _case((2, 3, 5, 70), True, note="more state than registers hold"),
            _case((2, 0, 5, 3), True, note="no steps: only the state"),
            _case((0, 4, 5, 3)),
            _case((16_411, 2, 5, 2), note="many rows"),
            _case((2, 3, 4, 2), True, DType.F16),
            _case((2, 3, 4, 2), True, DType.F64),
        ),
        work=_work_item,
        vjp=_selective_scan_vjp,
        batch=merge_batch_rule(0, 0, None, 0, 0, 0),
        doc="The selective scan of Mamba: h = exp(delta a) h + delta x b, y = c · h, "
        "step by step for every channel. x and delta are [B, L, D], a is [D, N], "
        "b and c are [B, L, N]; an initial state [B, N, D] is optional. The "
        "result [B, L + N, D] holds y of every step, followed by the last state.",
    )
)
