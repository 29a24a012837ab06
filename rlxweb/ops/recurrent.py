"""LSTM, GRU and plain recurrent networks over a sequence, one op each.

The product of the inputs with their weights is made before, for all steps at once; an
op is what is serial. Its result is [T + parts, D, B, H]: h of every step, then the last
h, then, of an LSTM, the last c, so that all three are views of one value. Gates stand
in ONNX's order (i o f c, z r h). Behind a row's own length steps are 0 and the state
stays. The recipes are laid out in `recurrent_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rlxweb.errors import Unsupported
from rlxweb.ir.batching import Examples, merged
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attr, Attrs, Op, TensorType, Types, registry
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.cell_steps import (
    CARRIED,
    MOST_UNROLLED,
    Cell,
    CellOfTensors,
    network_of,
)
from rlxweb.ops.elementwise import FLOATS, need
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32
from rlxweb.ops.recurrent_back import recurrent_back
from rlxweb.recipes.recurrent_calls import step_recipe
from rlxweb.recipes.recurrent_cells import DIRECTIONS, SHOWN, Kind, Network, network


def _infer(kind: Kind, types: Types, attrs: Attrs) -> TensorType:
    need(types[:2], FLOATS)
    net = network(kind, types, attrs)
    if types[1].dtype is not types[0].dtype:
        need(types[1:2], frozenset({types[0].dtype}))
    return TensorType(net.output, types[0].dtype)


def _meaning(kind: Kind) -> Callable[..., Any]:
    """Step by step, in f32 where it is f16."""

    def reference(xp: Any, attrs: Attrs, *operands: Any) -> Any:
        net = network_of(kind, attrs, operands)
        gates, weights = (widened(xp, x) for x in operands[:2])
        made = [_direction(xp, net, d, gates, weights, operands) for d in range(net.D)]
        whole = [xp.reshape(one, (-1, 1, net.B, net.H)) for one in made]
        found = xp.concat(whole, axis=1) if net.D > 1 else whole[0]
        return xp.asarray(found, dtype=operands[0].dtype)

    return reference


def _direction(
    xp: Any, net: Network, d: int, gates: Any, weights: Any, operands: tuple[Any, ...]
) -> Any:
    """[(T + parts) · B, H] of one direction."""
    H, G = net.H, net.gates
    w = [weights[d, :, k * H : (k + 1) * H] for k in range(G)]
    if net.state is None:
        state = [xp.zeros((net.B, H), dtype=gates.dtype)] * net.parts
    else:
        given = operands[net.state : net.state + net.parts]
        state = [widened(xp, one)[d] for one in given]
    extra = None
    if net.extra is not None:
        row = widened(xp, operands[net.extra])[d]
        extra = [row[k * H : (k + 1) * H] for k in range(net.extras)]

    def inputs(t: int) -> list[Any]:
        return [gates[t, :, (d * G + k) * H : (d * G + k + 1) * H] for k in range(G)]

    lengths = None
    if net.lengths is not None:
        lengths = xp.reshape(operands[net.lengths], (net.B, 1))
    made = Cell(xp, net, d, w, extra).walk(state, inputs, lengths)
    return xp.concat(made, axis=0)


def _build(kind: Kind, g: Graph, attrs: Attrs, *operands: Tensor) -> Tensor:
    """In f32 where it is f16, else step by step."""
    if operands[0].dtype is DType.F16:
        wide = in_f32(g, *operands)
        return g.cast(g.apply(kind, *wide, **attrs), DType.F16)
    net = network_of(kind, attrs, operands)
    if net.T * net.D > MOST_UNROLLED:
        raise Unsupported(
            f"{kind} of {net.T * net.D} steps in all and {net.H} hidden units",
            "its state does not fit this device's workgroup memory or bindings",
            f"up to {MOST_UNROLLED} steps are written out one by one",
            "cut the sequence and hand the state on",
        )
    every = [_unrolled(g, net, d, operands) for d in range(net.D)]
    return g.concat(every, axis=1) if net.D > 1 else every[0]


def _unrolled(g: Graph, net: Network, d: int, operands: tuple[Tensor, ...]) -> Tensor:
    """[T + parts, 1, B, H] of one direction, a product a gate and step."""
    B, H, G = net.B, net.H, net.gates
    gates, weights = operands[:2]

    def part(x: Tensor, count: int) -> list[Tensor]:
        """Row d of an operand, its last axis cut into parts of H."""
        row = g.narrow(x, 0, d, 1)
        pieces = [g.narrow(row, row.rank - 1, k * H, H) for k in range(count)]
        return [g.reshape(one, one.shape[1:]) for one in pieces]

    w = part(weights, G)
    if net.state is None:
        zero = g.expand(g.constant(0.0, gates.dtype), (B, H))
        state = [zero] * net.parts
    else:
        given = operands[net.state : net.state + net.parts]
        state = [part(one, 1)[0] for one in given]
    extra = part(operands[net.extra], net.extras) if net.extra is not None else None

    def inputs(t: int) -> list[Tensor]:
        row = g.reshape(g.narrow(gates, 0, t, 1), gates.shape[1:])
        return [g.narrow(row, 1, (d * G + k) * H, H) for k in range(G)]

    lengths = None
    if net.lengths is not None:
        lengths = g.reshape(operands[net.lengths], (B, 1))
    made = CellOfTensors(g, net, d, w, extra).walk(state, inputs, lengths)
    return g.concat([g.reshape(one, (1, 1, B, H)) for one in made], axis=0)


def _rows_for_all(kind: Kind, at: Examples) -> Tensor:
    """Examples are rows like the others, where the weights are the same for all."""
    ones = [
        TensorType(tuple(x.shape[1:] if varies else x.shape), x.dtype)
        for x, varies in zip(at.inputs, at.varies, strict=True)
    ]
    net = network(kind, tuple(ones), at.attrs)
    axes: list[int | None] = [1, None, *[None] * (len(ones) - 2)]
    if net.state is not None:
        axes[net.state : net.state + net.parts] = [1] * net.parts
    if net.lengths is not None:
        axes[net.lengths] = 0
    return merged(at, axes, 2)


def _flops(kind: Kind, inputs: Types, out: TensorType, attrs: Attrs) -> float:
    net = network(kind, inputs, attrs)
    each = 2.0 * net.gates * net.H * net.H + 12.0 * net.gates * net.H
    return net.T * net.D * net.B * each


def _work(
    kind: Kind, inputs: Types, out: TensorType, attrs: Attrs
) -> tuple[str, dict[str, int]]:
    """A product at every step, and the calls of the cell's arithmetic."""
    net = network(kind, inputs, attrs)
    size = {"m": net.B, "k": net.H, "n": net.gates * net.H}
    read = size["k"] * size["n"] * inputs[1].dtype.nbytes
    calls = 8 + 4 * net.gates
    steps = net.T * net.D
    return "recurrence", {"steps": steps, "calls": calls, "read": read, **size}


def _sample(
    kind: Kind,
    sizes: tuple[int, int, int],
    *,
    state: bool = False,
    extra: bool = False,
    lengths: int | None = None,
    dtype: DType = DType.F32,
    note: str = "",
    **attrs: Any,
) -> Sample:
    """Over (T, B, H); `lengths` reach up to that many steps."""
    (T, B, H), G = sizes, {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    D = 1 + (attrs.get("direction") == "bidirectional")
    parts = [Drawn((T, B, D * G * H), dtype), Drawn((D, H, G * H), dtype, -0.5, 0.5)]
    if state:
        parts += [Drawn((D, B, H), dtype)] * (1 + (kind == "lstm"))
    if extra:
        parts.append(Drawn((D, 3 * H if kind == "lstm" else H), dtype))
    if lengths is not None:
        parts.append(Drawn((B,), DType.I32, 0, lengths))
    return Sample(tuple(parts), attrs, note)


def _samples(kind: Kind, usual: str) -> tuple[Sample, ...]:
    odd = {
        "lstm": ("hard_sigmoid softsign scaled_tanh(1.5,0.7)", "softplus elu relu"),
        "gru": ("hard_sigmoid leaky_relu", "softsign thresholded_relu(0.5)"),
        "rnn": ("affine(0.5,0.25)", "softplus"),
    }[kind]
    both = " ".join(odd)
    many = {"lstm": 4099, "gru": 5471, "rnn": 16_411}[kind]
    made = partial(_sample, kind)
    return (
        made((1, 1, 1), state=True, note="one step"),
        made((7, 3, 5), state=True),
        made((5, 2, 40), state=True, note="more state than a small device shares"),
        made((4, 3, 5), direction="reverse", state=True, lengths=4),
        made((4, 3, 5), direction="bidirectional", lengths=4, activations=usual),
        made((3, 2, 3), direction="bidirectional", activations=both, clip=1.25),
        made((0, 2, 3), state=True, note="no steps: the state alone"),
        made((1, many, 4), note="many rows"),
        made((3, 2, 3), dtype=DType.F16),
        made((3, 2, 3), dtype=DType.F64, state=True),
    )


def _op(kind: Kind, most: int, usual: str, doc: str, *own: Attr, **more: Any) -> Op:
    return Op(
        name=kind,
        arity=(2, most),
        infer=partial(_infer, kind),
        reference=_meaning(kind),
        lower=Kernel(
            partial(step_recipe, kind), Compose(partial(_build, kind)), turns=(1,)
        ),
        attrs=(
            Attr("direction", "str", "forward", allowed=DIRECTIONS),
            Attr("activations", "str", usual),
            Attr("clip", "float", None, optional=True),
            *own,
        ),
        flops=partial(_flops, kind),
        work=partial(_work, kind),
        tolerance=CARRIED,
        vjp=recurrent_back(kind),
        batch=partial(_rows_for_all, kind),
        doc=doc,
        **more,
    )


_RESULT = (
    "Gates [T, B, D·{g}·H] hold the inputs' part of every step, biases included, "
    "weights are [D, H, {g}·H]; then, each if wanted, {more} and the rows' lengths "
    "[B]. The result [T + {parts}, D, B, H] is h of every step and then {last}. "
    "activations: names with constants in brackets, 'elu(0.5)', in ONNX's order, for "
    "one direction or for both."
)

registry.register_all(
    _op(
        "lstm",
        6,
        "sigmoid tanh tanh",
        "Long short-term memory, gates i o f c. "
        + _RESULT.format(
            g=4,
            more="h0 and c0 [D, B, H], peepholes [D, 3·H] (i o f)",
            parts=2,
            last="the last h and c",
        )
        + " shows: 'cell' has c of every step in place of h. quantized_state: products "
        "take h as the nearest of 256 equal steps that span each row's range and 0, as "
        "networks of 8 bits do.",
        Attr("input_forget", "bool", False),
        Attr("shows", "str", "hidden", allowed=SHOWN, later=True),
        Attr("quantized_state", "bool", False, later=True),
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
    _op(
        "gru",
        5,
        "sigmoid tanh",
        "Gated recurrent units, gates z r h. "
        + _RESULT.format(
            g=3,
            more="h0 [D, B, H], a bias [D, H] of the late product",
            parts=1,
            last="the last h",
        )
        + " linear_before_reset: the reset gate multiplies the product of the state "
        "(PyTorch's GRU), not the state.",
        Attr("linear_before_reset", "bool", False),
        samples=(
            *_samples("gru", "sigmoid tanh"),
            _sample("gru", (4, 3, 5), linear_before_reset=True, lengths=4),
            _sample("gru", (4, 3, 5), linear_before_reset=True, extra=True, state=True),
        ),
    ),
    _op(
        "rnn",
        4,
        "tanh",
        "f(gates + h · weights), step by step. "
        + _RESULT.format(g=1, more="h0 [D, B, H]", parts=1, last="the last h"),
        samples=_samples("rnn", "tanh"),
    ),
)
