"""Specification of a recurrent network, and one step of its cell as WGSL.

Gates lie in ONNX's order: i o f c of an LSTM, z r h of a GRU. What is written here are
the lines that make the new state of one hidden unit of the sums over its inputs and the
state before; where those sums come from is `recurrent_calls`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape_arithmetic import bad_dtype, bad_shape, format_shape
from rlxweb.ops.recurrent.activations import CellActivation, parse_activations

RecurrentKind = Literal["lstm", "gru", "rnn"]
GATE_COUNTS: dict[RecurrentKind, int] = {"lstm": 4, "gru": 3, "rnn": 1}
ACTIVATION_COUNTS: dict[RecurrentKind, int] = {"lstm": 3, "gru": 2, "rnn": 1}
STATE_COUNTS: dict[RecurrentKind, int] = {"lstm": 2, "gru": 1, "rnn": 1}
DIRECTIONS = ("forward", "reverse", "bidirectional")
SEQUENCE_STATES = ("hidden", "cell")
"""Names of the state that the result holds for every step; "cell" is for LSTMs only."""


@dataclass(frozen=True, slots=True)
class RecurrentNetwork:
    """Sizes, cell options and optional operands of one recurrent op.

    T B D H    steps, rows, directions, hidden units
    activations  of every direction in turn
    clip       bound of what goes into a function, or None
    has_coupled_gates  an LSTM's forget gate is 1 - i
    reset_after_product  a GRU's reset gate multiplies the product, not the state
    sequence_state  which part of the state a result has of every step
    quantizes_state  products take h as 8 bits: of each row 256 steps from its least to
                     its largest number, 0 among them
    state_input, extra_input, lengths_input  where these operands stand; the state of an
    LSTM is two
    """

    kind: RecurrentKind
    T: int
    B: int
    D: int
    H: int
    direction: str
    activations: tuple[CellActivation, ...]
    clip: float | None
    has_coupled_gates: bool
    reset_after_product: bool
    state_input: int | None
    extra_input: int | None
    lengths_input: int | None
    sequence_state: int
    quantizes_state: bool

    @property
    def gate_count(self) -> int:
        """Number of gates of the cell."""
        return GATE_COUNTS[self.kind]

    @property
    def state_count(self) -> int:
        """Number of state vectors: 2 for an LSTM (h and c), otherwise 1."""
        return STATE_COUNTS[self.kind]

    @property
    def extra_count(self) -> int:
        """Number of values per hidden unit in the extra operand."""
        return 3 if self.kind == "lstm" else 1

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the result: all steps, then the last state."""
        return (self.T + self.state_count, self.D, self.B, self.H)

    def direction_activations(self, d: int) -> tuple[CellActivation, ...]:
        """Return the activation functions of direction d."""
        count = ACTIVATION_COUNTS[self.kind]
        return self.activations[d * count : (d + 1) * count]

    def is_reversed(self, d: int) -> bool:
        """Return whether direction d runs backwards in time."""
        return self.direction == "reverse" or d == 1

    def time_steps(self, d: int) -> range:
        """Return the steps in the order in which direction d processes them."""
        return range(self.T)[:: -1 if self.is_reversed(d) else 1]


def recurrent_network(
    kind: RecurrentKind, types: Types, attrs: Mapping[str, Any]
) -> RecurrentNetwork:
    """Return the network described by operand types and attributes. Errors  as a shape
    rule's.

    After gates and weights come the first state, the extra operand and the lengths,
    each if it is there; they are told apart by rank and type.
    """
    gates, weights = types[:2]
    if gates.rank != 3 or weights.rank != 3:
        raise bad_shape(
            f"got gates {format_shape(gates.shape)} and weights "
            f"{format_shape(weights.shape)}",
            f"gates must be [T, B, D·{GATE_COUNTS[kind]}·H] and weights "
            f"[D, H, {GATE_COUNTS[kind]}·H] (T steps, B sequences, D directions, H "
            "hidden units)",
        )
    T, B, gates_width = gates.shape
    D, H, G = weights.shape[0], weights.shape[1], GATE_COUNTS[kind]
    direction = attrs["direction"]
    if (1 + (direction == "bidirectional")) != D or weights.shape[2] != G * H:
        raise bad_shape(
            f"got weights {format_shape(weights.shape)} for a {direction} {kind}",
            f"expected [D, H, {G}·H] with D = {1 + (direction == 'bidirectional')}",
        )
    if gates_width != D * G * H:
        raise bad_shape(
            f"got gates {format_shape(gates.shape)} for {H} hidden units",
            f"the last dimension must be D·{G}·H = {D * G * H}",
        )
    expected_shapes = {"state": (D, B, H), "extra": (D, 3 * H if kind == "lstm" else H)}
    positions = _optional_input_positions(types, kind, expected_shapes, B)
    return RecurrentNetwork(
        kind,
        *(T, B, D, H),
        direction,
        parse_activations(attrs["activations"], ACTIVATION_COUNTS[kind], D),
        attrs["clip"],
        attrs.get("input_forget", False),
        attrs.get("linear_before_reset", False),
        *positions,
        SEQUENCE_STATES.index(attrs.get("shows", "hidden")),
        attrs.get("quantized_state", False),
    )


def _optional_input_positions(
    types: Types,
    kind: RecurrentKind,
    expected_shapes: Mapping[str, tuple[int, ...]],
    B: int,
) -> tuple[int | None, int | None, int | None]:
    """Return the operand positions of the first state, the extra operand and the
    lengths.
    """
    position, dtype = 2, types[0].dtype
    state = extra = lengths = None

    def is_next(rank: int, is_integer: bool = False) -> bool:
        has_rank = position < len(types) and types[position].rank == rank
        return has_rank and types[position].dtype.is_integer is is_integer

    if is_next(3):
        state = position
        position += STATE_COUNTS[kind]
    if kind != "rnn" and is_next(2):
        extra = position
        position += 1
    if is_next(1, is_integer=True):
        lengths = position
        position += 1
    if position != len(types):
        unmatched = ", ".join(str(operand) for operand in types[2:])
        raise bad_shape(
            f"the operands after the weights are {unmatched}",
            f"expected, each optional and in this order: {_OPERAND_ORDER[kind]}",
        )
    for name, first, count in (
        ("state", state, STATE_COUNTS[kind]),
        ("extra", extra, 1),
    ):
        for operand in () if first is None else types[first : first + count]:
            _check_operand(
                _OPERAND_NAMES[kind][name], operand, expected_shapes[name], dtype
            )
    if lengths is not None and types[lengths].shape != (B,):
        raise bad_shape(
            f"got lengths {format_shape(types[lengths].shape)}",
            f"expected one length per sequence of the batch, [{B}]",
        )
    return state, extra, lengths


_OPERAND_NAMES: dict[RecurrentKind, dict[str, str]] = {
    "lstm": {"state": "h0 or c0", "extra": "the peephole operand"},
    "gru": {"state": "h0", "extra": "the recurrent bias of gate h"},
    "rnn": {"state": "h0"},
}
_OPERAND_ORDER: dict[RecurrentKind, str] = {
    "lstm": "h0 and c0, both [D, B, H], then peepholes [D, 3·H], then integer "
    "lengths [B]",
    "gru": "h0 [D, B, H], then the recurrent bias of gate h [D, H], then integer "
    "lengths [B]",
    "rnn": "h0 [D, B, H], then integer lengths [B]",
}


def _check_operand(
    name: str, operand: TensorType, shape: tuple[int, ...], dtype: Any
) -> None:
    """Raise an error unless an operand has this shape and dtype."""
    if operand.shape != shape:
        raise bad_shape(
            f"{name} has shape {format_shape(operand.shape)}",
            f"expected {format_shape(shape)}",
        )
    if operand.dtype is not dtype:
        raise bad_dtype(
            f"{name} has dtype {operand.dtype}",
            f"expected the dtype of the gates, {dtype}",
        )


def quantize_dequantize_state(xp: Any, h: Any) -> Any:
    """Round a state [B, H] to the values that 8 bits per row can represent, zero among
    them.
    """
    low, high = xp.min(h, axis=1, keepdims=True), xp.max(h, axis=1, keepdims=True)
    zeros = xp.zeros_like(low)
    low, high = xp.minimum(low, zeros), xp.maximum(high, zeros)
    width = high - low
    scale = xp.where(width == 0, xp.ones_like(width), width / 255)
    zero = xp.round(-low / scale)
    q = xp.round(h / scale) + zero
    q = xp.minimum(xp.maximum(q, xp.zeros_like(q)), xp.full_like(q, 255.0))
    return (q - zero) * scale


# --- WGSL ---------------------------------------------------------------------------


def activations_wgsl(net: RecurrentNetwork, d: int) -> list[str]:
    """Return the WGSL of a direction's activations `f0`, `f1` …, clipping included."""
    lines = []
    for index, function in enumerate(net.direction_activations(d)):
        lines.append(function.wgsl_function(f"bare{index}"))
        x = "x"
        if net.clip is not None:
            limit = repr(float(net.clip))
            x = f"keeps_nan(x, clamp(x, -{limit}, {limit}))"
        lines.append(f"fn f{index}(x: F) -> F {{ return bare{index}({x}); }}")
    return [*lines, QUANTIZE_STATE_WGSL] if net.quantizes_state else lines


def activation_includes(net: RecurrentNetwork, d: int) -> tuple[str, ...]:
    """Return the WGSL includes that the activations of a direction call."""
    quantization_includes = (
        ("quotient", "rounded_quotient") if net.quantizes_state else ()
    )
    return tuple(
        dict.fromkeys(
            (
                *(
                    include
                    for function in net.direction_activations(d)
                    for include in function.uses
                ),
                *quantization_includes,
            )
        )
    )


def state_range_wgsl(net: RecurrentNetwork, state: str) -> list[str]:
    """Return the WGSL that computes the scale and zero point of a row's 8-bit state.

    state   WGSL of its element k
    """
    if not net.quantizes_state:
        return []
    return [
        "var low = 0.0;",
        "var high = 0.0;",
        "for (var k = 0u; k < u.k; k++) {",
        f"  let v = {state};",
        "  low = min(low, v);",
        "  high = max(high, v);",
        "}",
        "let scale = select(quotient(high - low, 255.0), 1.0, high == low);",
        "let zero = rounded_quotient(-low, scale);",
    ]


def state_read_wgsl(net: RecurrentNetwork, state: str) -> str:
    """Return the WGSL of a state element as the products read it, valid after
    `state_range_wgsl`.
    """
    return f"in_bytes({state}, scale, zero)" if net.quantizes_state else state


QUANTIZE_STATE_WGSL = """fn in_bytes(x: F, scale: F, zero: F) -> F {
  let q = clamp(rounded_quotient(x, scale) + zero, 0.0, 255.0);
  return keeps_nan(x, (q - zero) * scale);
}"""


def sequence_state_wgsl(net: RecurrentNetwork) -> str:
    """Return the WGSL name of the state that is stored for every step."""
    return ("next_h", "next_c")[net.sequence_state]


GRU_BLEND_WGSL = "let next_h = (1.0 - z) * n + z * h;"
"""WGSL statement that computes the new state of a GRU's unit."""


def cell_wgsl(net: RecurrentNetwork, load: str) -> list[str]:
    """Return the WGSL that computes `next_h` (and `next_c`) from `a0` …, `h` and `c`.

    Not for a GRU whose second product waits for the first.

    a0 …   sums of the unit's gates; of a GRU `a2` is without the product, which is `m`
    load   WGSL of the extra operand at {gate}
    """
    if net.kind == "rnn":
        return ["let next_h = f0(a0);"]
    if net.kind == "lstm":
        return _lstm_wgsl(net, load)
    recurrent_product = (
        f"(m + {load.format(gate='0u')})" if net.extra_input is not None else "m"
    )
    return [
        "let z = f0(a0);",
        "let r = f0(a1);",
        f"let n = f1(a2 + r * {recurrent_product});",
        GRU_BLEND_WGSL,
    ]


def _lstm_wgsl(net: RecurrentNetwork, load: str) -> list[str]:
    """Return the WGSL of an LSTM cell's step."""
    peepholes = [""] * 3
    if net.extra_input is not None:
        cells = ("c", "next_c", "c")
        peepholes = [
            f" + {load.format(gate=f'{gate}u')} * {cell}"
            for gate, cell in enumerate(cells)
        ]
    forget = "1.0 - i" if net.has_coupled_gates else f"f0(a2{peepholes[2]})"
    return [
        f"let i = f0(a0{peepholes[0]});",
        f"let forget = {forget};",
        "let next_c = forget * c + i * f1(a3);",
        f"let next_h = f0(a1{peepholes[1]}) * f2(next_c);",
    ]
