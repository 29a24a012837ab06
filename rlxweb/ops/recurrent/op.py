"""LSTM, GRU and plain recurrent networks over a sequence, one op each.

The product of the inputs with their weights is made before, for all steps at once; an
op is what is serial. Its result is [T + parts, D, B, H]: h of every step, then the last
h, then, of an LSTM, the last c, so that all three are views of one value. Gates stand
in ONNX's order (i o f c, z r h). Behind a row's own length steps are 0 and the state
stays. The plans are laid out in `wgsl/plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rlxweb.core.errors import Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.ir.vmap_batching import BatchContext, merge_batch_axis
from rlxweb.ops.elementwise.op import FLOAT_DTYPES, require_dtypes
from rlxweb.ops.matmul.op import widen_float16
from rlxweb.ops.norm.op import widen_float16_tensors
from rlxweb.ops.recurrent.steps import (
    MAX_UNROLLED_STEPS,
    RECURRENT_TOLERANCE,
    GraphRecurrentCell,
    RecurrentCell,
    network_from_operands,
)
from rlxweb.ops.recurrent.vjp import recurrent_vjp
from rlxweb.ops.recurrent.wgsl.cell import (
    DIRECTIONS,
    SEQUENCE_STATES,
    RecurrentKind,
    RecurrentNetwork,
    recurrent_network,
)
from rlxweb.ops.recurrent.wgsl.plan import plan_recurrent_steps


def _infer(kind: RecurrentKind, types: Types, attrs: Attrs) -> TensorType:
    require_dtypes(types[:2], FLOAT_DTYPES)
    net = recurrent_network(kind, types, attrs)
    if types[1].dtype is not types[0].dtype:
        require_dtypes(types[1:2], frozenset({types[0].dtype}))
    return TensorType(net.output_shape, types[0].dtype)


def _make_reference(kind: RecurrentKind) -> Callable[..., Any]:
    """Return the reference: step by step, with f16 computed in f32."""

    def reference(xp: Any, attrs: Attrs, *operands: Any) -> Any:
        net = network_from_operands(kind, attrs, operands)
        gates, weights = (widen_float16(xp, x) for x in operands[:2])
        directions = [
            _run_direction(xp, net, d, gates, weights, operands) for d in range(net.D)
        ]
        reshaped = [
            xp.reshape(direction, (-1, 1, net.B, net.H)) for direction in directions
        ]
        joined_directions = xp.concat(reshaped, axis=1) if net.D > 1 else reshaped[0]
        return xp.asarray(joined_directions, dtype=operands[0].dtype)

    return reference


def _run_direction(
    xp: Any,
    net: RecurrentNetwork,
    d: int,
    gates: Any,
    weights: Any,
    operands: tuple[Any, ...],
) -> Any:
    """Run one direction over arrays and return [(T + parts) · B, H]."""
    H, G = net.H, net.gate_count
    w = [weights[d, :, k * H : (k + 1) * H] for k in range(G)]
    if net.state_input is None:
        state = [xp.zeros((net.B, H), dtype=gates.dtype)] * net.state_count
    else:
        states = operands[net.state_input : net.state_input + net.state_count]
        state = [widen_float16(xp, state_part)[d] for state_part in states]
    extra_parts = None
    if net.extra_input is not None:
        row = widen_float16(xp, operands[net.extra_input])[d]
        extra_parts = [row[k * H : (k + 1) * H] for k in range(net.extra_count)]

    def step_gates(t: int) -> list[Any]:
        return [gates[t, :, (d * G + k) * H : (d * G + k + 1) * H] for k in range(G)]

    lengths = None
    if net.lengths_input is not None:
        lengths = xp.reshape(operands[net.lengths_input], (net.B, 1))
    steps = RecurrentCell(xp, net, d, w, extra_parts).run_steps(
        state, step_gates, lengths
    )
    return xp.concat(steps, axis=0)


def _build(kind: RecurrentKind, g: Graph, attrs: Attrs, *operands: Tensor) -> Tensor:
    """Build f16 networks in f32, and others step by step."""
    if operands[0].dtype is DType.F16:
        wide = widen_float16_tensors(g, *operands)
        return g.cast(g.apply(kind, *wide, **attrs), DType.F16)
    net = network_from_operands(kind, attrs, operands)
    if net.T * net.D > MAX_UNROLLED_STEPS:
        raise Unsupported(
            f"{kind} of {net.T * net.D} steps in total and {net.H} hidden units",
            "the state does not fit this device's workgroup memory or bindings, so "
            "the steps must be unrolled",
            f"at most {MAX_UNROLLED_STEPS} steps can be unrolled",
            "split the sequence, and pass the last state of each part to the next",
        )
    directions = [_unroll_direction(g, net, d, operands) for d in range(net.D)]
    return g.concat(directions, axis=1) if net.D > 1 else directions[0]


def _unroll_direction(
    g: Graph, net: RecurrentNetwork, d: int, operands: tuple[Tensor, ...]
) -> Tensor:
    """Unroll one direction into [T + parts, 1, B, H], with one product per gate and
    step.
    """
    B, H, G = net.B, net.H, net.gate_count
    gates, weights = operands[:2]

    def gate_parts(x: Tensor, count: int) -> list[Tensor]:
        """Return row d of an operand, its last axis split into parts of H."""
        row = g.narrow(x, 0, d, 1)
        chunks = [g.narrow(row, row.rank - 1, k * H, H) for k in range(count)]
        return [g.reshape(chunk, chunk.shape[1:]) for chunk in chunks]

    w = gate_parts(weights, G)
    if net.state_input is None:
        zero = g.expand(g.constant(0.0, gates.dtype), (B, H))
        state = [zero] * net.state_count
    else:
        states = operands[net.state_input : net.state_input + net.state_count]
        state = [gate_parts(value, 1)[0] for value in states]
    extra = (
        gate_parts(operands[net.extra_input], net.extra_count)
        if net.extra_input is not None
        else None
    )

    def step_gates(t: int) -> list[Tensor]:
        row = g.reshape(g.narrow(gates, 0, t, 1), gates.shape[1:])
        return [g.narrow(row, 1, (d * G + k) * H, H) for k in range(G)]

    lengths = None
    if net.lengths_input is not None:
        lengths = g.reshape(operands[net.lengths_input], (B, 1))
    steps = GraphRecurrentCell(g, net, d, w, extra).run_steps(
        state, step_gates, lengths
    )
    return g.concat([g.reshape(value, (1, 1, B, H)) for value in steps], axis=0)


def _batch_rows(kind: RecurrentKind, ctx: BatchContext) -> Tensor:
    """Batch examples as additional rows, where all share the same weights."""
    example_types = [
        TensorType(tuple(x.shape[1:] if is_batched else x.shape), x.dtype)
        for x, is_batched in zip(ctx.inputs, ctx.is_batched, strict=True)
    ]
    net = recurrent_network(kind, tuple(example_types), ctx.attrs)
    axes: list[int | None] = [1, None, *[None] * (len(example_types) - 2)]
    if net.state_input is not None:
        axes[net.state_input : net.state_input + net.state_count] = [
            1
        ] * net.state_count
    if net.lengths_input is not None:
        axes[net.lengths_input] = 0
    return merge_batch_axis(ctx, axes, 2)


def _flops(kind: RecurrentKind, inputs: Types, out: TensorType, attrs: Attrs) -> float:
    net = recurrent_network(kind, inputs, attrs)
    step_flops = 2.0 * net.gate_count * net.H * net.H + 12.0 * net.gate_count * net.H
    return net.T * net.D * net.B * step_flops


def _work_item(
    kind: RecurrentKind, inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    """Return the work of one matrix product per step plus the dispatches of the cell's
    arithmetic.
    """
    net = recurrent_network(kind, inputs, attrs)
    size = {"m": net.B, "k": net.H, "n": net.gate_count * net.H}
    read_bytes = size["k"] * size["n"] * inputs[1].dtype.nbytes
    dispatch_count = 8 + 4 * net.gate_count
    steps = net.T * net.D
    return "recurrence", {
        "steps": steps,
        "calls": dispatch_count,
        "read": read_bytes,
        **size,
    }


def _sample(
    kind: RecurrentKind,
    sizes: tuple[int, int, int],
    *,
    state: bool = False,
    extra: bool = False,
    lengths: int | None = None,
    dtype: DType = DType.F32,
    note: str = "",
    **attrs: Any,
) -> Sample:
    """Return a sample of sizes (T, B, H), with row lengths up to `lengths` steps."""
    (T, B, H), G = sizes, {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    D = 1 + (attrs.get("direction") == "bidirectional")
    inputs = [Drawn((T, B, D * G * H), dtype), Drawn((D, H, G * H), dtype, -0.5, 0.5)]
    if state:
        inputs += [Drawn((D, B, H), dtype)] * (1 + (kind == "lstm"))
    if extra:
        inputs.append(Drawn((D, 3 * H if kind == "lstm" else H), dtype))
    if lengths is not None:
        inputs.append(Drawn((B,), DType.I32, 0, lengths))
    return Sample(tuple(inputs), attrs, note)


def _samples(kind: RecurrentKind, default_activations: str) -> tuple[Sample, ...]:
    """Return the samples that every kind of network shares."""
    unusual_activations = {
        "lstm": ("hard_sigmoid softsign scaled_tanh(1.5,0.7)", "softplus elu relu"),
        "gru": ("hard_sigmoid leaky_relu", "softsign thresholded_relu(0.5)"),
        "rnn": ("affine(0.5,0.25)", "softplus"),
    }[kind]
    two_directions = " ".join(unusual_activations)
    row_count = {"lstm": 4099, "gru": 5471, "rnn": 16_411}[kind]
    sample = partial(_sample, kind)
    return (
        sample((1, 1, 1), state=True, note="one step"),
        sample((7, 3, 5), state=True),
        sample(
            (5, 2, 40),
            state=True,
            note="more state than the workgroup memory of a small device holds",
        ),
        sample((4, 3, 5), direction="reverse", state=True, lengths=4),
        sample(
            (4, 3, 5),
            direction="bidirectional",
            lengths=4,
            activations=default_activations,
        ),
        sample(
            (3, 2, 3), direction="bidirectional", activations=two_directions, clip=1.25
        ),
        sample((0, 2, 3), state=True, note="no steps: only the state"),
        sample((1, row_count, 4), note="many rows"),
        sample((3, 2, 3), dtype=DType.F16),
        sample((3, 2, 3), dtype=DType.F64, state=True),
    )


def _recurrent_op(
    kind: RecurrentKind,
    max_arity: int,
    default_activations: str,
    doc: str,
    *extra_attrs: Attr,
    **op_fields: Any,
) -> Op:
    """Return the record of one kind of recurrent network."""
    return Op(
        name=kind,
        arity=(2, max_arity),
        infer=partial(_infer, kind),
        reference=_make_reference(kind),
        lower=Kernel(
            partial(plan_recurrent_steps, kind),
            Compose(partial(_build, kind)),
            transposable_inputs=(1,),
        ),
        attrs=(
            Attr("direction", "str", "forward", allowed=DIRECTIONS),
            Attr("activations", "str", default_activations),
            Attr("clip", "float", None, above=0, at_most=3.4e38, is_nullable=True),
            *extra_attrs,
        ),
        flops=partial(_flops, kind),
        work=partial(_work_item, kind),
        tolerance=RECURRENT_TOLERANCE,
        vjp=recurrent_vjp(kind),
        batch=partial(_batch_rows, kind),
        doc=doc,
        **op_fields,
    )


_RESULT_DOC = (
    "The gates [T, B, D·{g}·H] (T steps, B rows, D directions, H hidden units) hold "
    "the input's contribution to every step, including biases; the weights are [D, "
    "H, {g}·H]. Optional operands follow in this order: {more}; row lengths [B]. The "
    "result [T + {parts}, D, B, H] holds h of every step, followed by {last}. The "
    "attribute `activations` gives the names of the functions in ONNX's order, for "
    "one direction or for both, with constants in parentheses, such as 'elu(0.5)'."
)

registry.register_all(
    _recurrent_op(
        "lstm",
        6,
        "sigmoid tanh tanh",
        "Long short-term memory (LSTM) with gates i, o, f and c. "
        + _RESULT_DOC.format(
            g=4,
            more="h0 and c0, each [D, B, H]; peepholes [D, 3·H] of gates i, o and f",
            parts=2,
            last="the last h and c",
        )
        + (
            " With shows='cell', the result holds c of every step instead of h. With "
            "quantized_state=True, h is rounded before each product to the nearest "
            "of 256 equally spaced values that span the row's range and 0, as in "
            "8-bit networks."
        ),
        Attr("input_forget", "bool", False),
        Attr("shows", "str", "hidden", allowed=SEQUENCE_STATES, is_added_later=True),
        Attr("quantized_state", "bool", False, is_added_later=True),
        samples=(
            *_samples("lstm", "sigmoid tanh tanh"),
            _sample("lstm", (4, 3, 5), extra=True, state=True, lengths=4),
            _sample("lstm", (4, 3, 5), input_forget=True),
            _sample(
                "lstm",
                (4, 3, 5),
                state=True,
                extra=True,
                lengths=5,
                clip=2.0,
                input_forget=True,
                direction="bidirectional",
                note="all at once",
            ),
            _sample("lstm", (4, 3, 5), extra=True, shows="cell", lengths=4),
            _sample("lstm", (5, 2, 40), shows="cell", direction="bidirectional"),
            _sample("lstm", (4, 3, 5), quantized_state=True, state=True),
            _sample(
                "lstm",
                (5, 2, 40),
                quantized_state=True,
                direction="bidirectional",
                lengths=5,
            ),
        ),
    ),
    _recurrent_op(
        "gru",
        5,
        "sigmoid tanh",
        "Gated recurrent unit (GRU) with gates z, r and h. "
        + _RESULT_DOC.format(
            g=3,
            more="h0 [D, B, H]; a bias [D, H] that is added to the product of the "
            "state and the weights of gate h",
            parts=1,
            last="the last h",
        )
        + " With linear_before_reset=True, the reset gate multiplies the product of "
        "the state and the weights (as in PyTorch's GRU), not the state.",
        Attr("linear_before_reset", "bool", False),
        samples=(
            *_samples("gru", "sigmoid tanh"),
            _sample("gru", (4, 3, 5), linear_before_reset=True, lengths=4),
            _sample("gru", (4, 3, 5), linear_before_reset=True, extra=True, state=True),
        ),
    ),
    _recurrent_op(
        "rnn",
        4,
        "tanh",
        "Recurrent network: h = f(gates + h · weights), step by step. "
        + _RESULT_DOC.format(g=1, more="h0 [D, B, H]", parts=1, last="the last h"),
        samples=_samples("rnn", "tanh"),
    ),
)
