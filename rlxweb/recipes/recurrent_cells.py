"""A recurrent network as data, and one step of its cell as WGSL.

Gates lie in ONNX's order: i o f c of an LSTM, z r h of a GRU. What is written here are
the lines that make the new state of one hidden unit of the sums over its inputs and the
state before; where those sums come from is `recurrent_calls`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import bad_attribute, bad_dtype, bad_shape, show
from rlxweb.recipes.cell_functions import CellFunction, functions_of

Kind = Literal["lstm", "gru", "rnn"]
GATES: dict[Kind, int] = {"lstm": 4, "gru": 3, "rnn": 1}
FUNCTIONS: dict[Kind, int] = {"lstm": 3, "gru": 2, "rnn": 1}
PARTS: dict[Kind, int] = {"lstm": 2, "gru": 1, "rnn": 1}
DIRECTIONS = ("forward", "reverse", "bidirectional")
SHOWN = ("hidden", "cell")
"""What of an LSTM's state the result may have of every step."""


@dataclass(frozen=True, slots=True)
class Network:
    """One recurrent op: sizes, how its cell works, which operands are there.

    T B D H    steps, rows, directions, hidden units
    functions  of every direction in turn
    clip       bound of what goes into a function, or None
    coupled    an LSTM's forget gate is 1 - i
    late       a GRU's reset gate multiplies the product, not the state
    shown      which part of the state a result has of every step
    quantized  products take h as 8 bits: of each row 256 steps from its least to its
               largest number, 0 among them
    state, extra, lengths  where these operands stand; the state of an LSTM is two
    """

    kind: Kind
    T: int
    B: int
    D: int
    H: int
    directions: str
    functions: tuple[CellFunction, ...]
    clip: float | None
    coupled: bool
    late: bool
    state: int | None
    extra: int | None
    lengths: int | None
    shown: int
    quantized: bool

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    @property
    def parts(self) -> int:
        """Values of a state: h, and c beside it."""
        return PARTS[self.kind]

    @property
    def extras(self) -> int:
        """Values for each unit of the extra operand."""
        return 3 if self.kind == "lstm" else 1

    @property
    def output(self) -> tuple[int, ...]:
        return (self.T + self.parts, self.D, self.B, self.H)

    def of(self, d: int) -> tuple[CellFunction, ...]:
        """The functions of direction d."""
        each = FUNCTIONS[self.kind]
        return self.functions[d * each : (d + 1) * each]

    def is_reversed(self, d: int) -> bool:
        return self.directions == "reverse" or d == 1

    def times(self, d: int) -> range:
        """The steps in the order in which direction d takes them."""
        return range(self.T)[:: -1 if self.is_reversed(d) else 1]


def network(kind: Kind, types: Types, attrs: Mapping[str, Any]) -> Network:
    """The network that operands and attributes say. Errors  as a shape rule's.

    After gates and weights come the first state, the extra operand and the lengths,
    each if it is there; they are told apart by rank and type.
    """
    gates, weights = types[:2]
    if gates.rank != 3 or weights.rank != 3:
        raise bad_shape(
            f"gates {show(gates.shape)} and weights {show(weights.shape)}",
            "gates are [T, B, D·G·H] and weights [D, H, G·H]",
        )
    T, B, wide = gates.shape
    D, H, G = weights.shape[0], weights.shape[1], GATES[kind]
    directions = attrs["direction"]
    if (1 + (directions == "bidirectional")) != D or weights.shape[2] != G * H:
        raise bad_shape(
            f"weights {show(weights.shape)} of a {directions} {kind}",
            f"[D, H, {G}·H], D = {1 + (directions == 'bidirectional')}",
        )
    if wide != D * G * H:
        raise bad_shape(
            f"gates {show(gates.shape)} beside {H} hidden units",
            f"the last dimension is D·{G}·H = {D * G * H}",
        )
    clip = attrs["clip"]
    if clip is not None and not 0 < clip < 3.4e38:
        raise bad_attribute(f"clip={clip}", "a bound is finite and > 0")
    wanted = {"state": (D, B, H), "extra": (D, 3 * H if kind == "lstm" else H)}
    places = _places(types, kind, wanted, B)
    return Network(
        kind,
        *(T, B, D, H),
        directions,
        functions_of(attrs["activations"], FUNCTIONS[kind], D),
        clip,
        attrs.get("input_forget", False),
        attrs.get("linear_before_reset", False),
        *places,
        SHOWN.index(attrs.get("shows", "hidden")),
        attrs.get("quantized_state", False),
    )


def _places(
    types: Types, kind: Kind, wanted: Mapping[str, tuple[int, ...]], B: int
) -> tuple[int | None, int | None, int | None]:
    """Where the first state, the extra operand and the lengths stand."""
    at, dtype = 2, types[0].dtype
    state = extra = lengths = None

    def is_next(rank: int, whole: bool = False) -> bool:
        there = at < len(types) and types[at].rank == rank
        return there and types[at].dtype.is_integer is whole

    if is_next(3):
        state = at
        at += PARTS[kind]
    if kind != "rnn" and is_next(2):
        extra = at
        at += 1
    if is_next(1, whole=True):
        lengths = at
        at += 1
    if at != len(types):
        left = ", ".join(str(one) for one in types[2:])
        raise bad_shape(
            f"operands after the weights: {left}",
            f"in this order, each if wanted: {_ORDER[kind]}",
        )
    for name, first, count in (("state", state, PARTS[kind]), ("extra", extra, 1)):
        for one in () if first is None else types[first : first + count]:
            _check(one, wanted[name], dtype)
    if lengths is not None and types[lengths].shape != (B,):
        raise bad_shape(f"lengths {show(types[lengths].shape)}", f"one a row: [{B}]")
    return state, extra, lengths


_ORDER: dict[Kind, str] = {
    "lstm": "h0 and c0 [D, B, H], peepholes [D, 3·H], lengths [B] of integers",
    "gru": "h0 [D, B, H], bias of the late product [D, H], lengths [B] of integers",
    "rnn": "h0 [D, B, H], lengths [B] of integers",
}


def _check(one: TensorType, shape: tuple[int, ...], dtype: Any) -> None:
    if one.shape != shape:
        raise bad_shape(f"an operand {show(one.shape)}", f"it is {show(shape)} here")
    if one.dtype is not dtype:
        raise bad_dtype(f"an operand of {one.dtype}", f"the gates are {dtype}")


def in_bytes(xp: Any, h: Any) -> Any:
    """Numbers [B, H] that 8 bits of each row's range hold, 0 among them."""
    low, high = xp.min(h, axis=1, keepdims=True), xp.max(h, axis=1, keepdims=True)
    none = xp.zeros_like(low)
    low, high = xp.minimum(low, none), xp.maximum(high, none)
    wide = high - low
    scale = xp.where(wide == 0, xp.ones_like(wide), wide / 255)
    zero = xp.round(-low / scale)
    q = xp.round(h / scale) + zero
    q = xp.minimum(xp.maximum(q, xp.zeros_like(q)), xp.full_like(q, 255.0))
    return (q - zero) * scale


# --- WGSL ---------------------------------------------------------------------------


def functions_text(net: Network, d: int) -> list[str]:
    """`f0`, `f1` … of a direction, after the clip."""
    lines = []
    for at, function in enumerate(net.of(d)):
        lines.append(function.text(f"bare{at}"))
        x = "x"
        if net.clip is not None:
            bound = repr(float(net.clip))
            x = f"keeps_nan(x, clamp(x, -{bound}, {bound}))"
        lines.append(f"fn f{at}(x: F) -> F {{ return bare{at}({x}); }}")
    return [*lines, IN_BYTES] if net.quantized else lines


def uses_of(net: Network, d: int) -> tuple[str, ...]:
    """The includes that the functions of a direction call."""
    own = ("quotient", "rounded_quotient") if net.quantized else ()
    return tuple(dict.fromkeys((*(one for f in net.of(d) for one in f.uses), *own)))


def range_text(net: Network, state: str) -> list[str]:
    """The scale and the zero by which a row's state is 8 bits.

    state   WGSL of its element k
    """
    if not net.quantized:
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


def read_text(net: Network, state: str) -> str:
    """WGSL of an element of the state as products take it, after `range_text`."""
    return f"in_bytes({state}, scale, zero)" if net.quantized else state


IN_BYTES = """fn in_bytes(x: F, scale: F, zero: F) -> F {
  let q = clamp(rounded_quotient(x, scale) + zero, 0.0, 255.0);
  return keeps_nan(x, (q - zero) * scale);
}"""


def shown_text(net: Network) -> str:
    """The name of what is shown of a step."""
    return ("next_h", "next_c")[net.shown]


BLENDED = "let next_h = (1.0 - z) * n + z * h;"
"""The new state of a GRU's unit."""


def cell_text(net: Network, load: str) -> list[str]:
    """The new state `next_h` (and `next_c`) of `a0` …, `h` and `c`.

    Not for a GRU whose second product waits for the first.

    a0 …   sums of the unit's gates; of a GRU `a2` is without the product, which is `m`
    load   WGSL of the extra operand at {gate}
    """
    if net.kind == "rnn":
        return ["let next_h = f0(a0);"]
    if net.kind == "lstm":
        return _lstm(net, load)
    late = f"(m + {load.format(gate='0u')})" if net.extra is not None else "m"
    return [
        "let z = f0(a0);",
        "let r = f0(a1);",
        f"let n = f1(a2 + r * {late});",
        BLENDED,
    ]


def _lstm(net: Network, load: str) -> list[str]:
    peeps = [""] * 3
    if net.extra is not None:
        cells = ("c", "next_c", "c")
        peeps = [
            f" + {load.format(gate=f'{at}u')} * {cell}" for at, cell in enumerate(cells)
        ]
    forget = "1.0 - i" if net.coupled else f"f0(a2{peeps[2]})"
    return [
        f"let i = f0(a0{peeps[0]});",
        f"let forget = {forget};",
        "let next_c = forget * c + i * f1(a3);",
        f"let next_h = f0(a1{peeps[1]}) * f2(next_c);",
    ]
