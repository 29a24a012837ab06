"""A linear recurrence whose channels are mixed by products, as a network's are.

The derivative of a recurrent network is one, forwards through time as well as back: the
step is the cell's linear part at its state, which is the same for both directions but
for a transposition. So is the derivative of such a recurrence. `recurrent_back.py` says
what the coefficients of a cell are; the calls are laid out in
`linear_recurrence_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
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
from rlxweb.recipes.linear_recurrence_calls import linear_step_recipe

NAME = "linear_recurrence"
MOST_PARTS, MOST_GATES = 4, 8


def _infer(types: Types, attrs: Attrs) -> TensorType:
    dtype = same_dtype(types)
    need(types, FLOATS)
    x, _, weights, _ = types
    if x.rank != 4 or weights.rank != 2:
        raise bad_shape(
            f"x {show(x.shape)} and weights {show(weights.shape)}",
            "x is [T, B, m, H] and weights [H, G·H]",
        )
    T, B, m, H = x.shape
    G = weights.shape[1] // H if H else 1
    if not 1 <= m <= MOST_PARTS or not 1 <= G <= MOST_GATES:
        raise bad_shape(
            f"{m} parts of the state and {G} products",
            f"1 to {MOST_PARTS} parts and 1 to {MOST_GATES} products",
        )
    wanted = {
        "coefficients": (T, B, m * m + G * m, H),
        "weights": (H, G * H),
        "state": (B, m, H),
    }
    for (name, want), one in zip(wanted.items(), types[1:], strict=True):
        if one.shape != want:
            raise bad_shape(f"{name} {show(one.shape)}", f"it is {show(want)} here")
    return TensorType((T + 1, B, m, H), dtype)


def _walked(
    n: Any, attrs: Attrs, operands: tuple[Any, ...], total: Callable[[Any, int], Any]
) -> list[Any]:
    """The sum of every step, then the last state, over arrays or over tensors.

    n      the namespace, or the graph
    total  the sum along an axis
    """
    x, coefs, weights, state = operands
    T, B, m, H = x.shape
    G = coefs.shape[2] // m - m
    made: list[Any] = [None] * T
    if attrs["transposed"]:
        weights = n.swapaxes(weights, 0, 1)
    for t in range(T)[:: -1 if attrs["reverse"] else 1]:
        made[t] = p = state + x[t]
        keeps = n.reshape(coefs[t][:, : m * m], (B, m, m, H))
        gives = n.reshape(coefs[t][:, m * m :], (B, G, m, H))
        if attrs["transposed"]:
            sent = total(gives * n.reshape(p, (B, 1, m, H)), 2)
            got = n.reshape(sent, (B, G * H)) @ weights
            state = total(keeps * n.reshape(p, (B, m, 1, H)), 1)
            first = state[:, :1] + n.reshape(got, (B, 1, H))
            state = n.concat([first, state[:, 1:]], axis=1) if m > 1 else first
        else:
            got = n.reshape(p[:, 0] @ weights, (B, G, 1, H))
            state = total(keeps * n.reshape(p, (B, 1, m, H)), 2)
            state = state + total(gives * got, 1)
    return [*made, state]


def _reference(xp: Any, attrs: Attrs, *operands: Any) -> Any:
    wide = tuple(widened(xp, one) for one in operands)
    made = _walked(xp, attrs, wide, lambda x, axis: xp.sum(x, axis=axis))
    return xp.asarray(xp.stack(made), dtype=operands[0].dtype)


def _build(g: Graph, attrs: Attrs, *operands: Tensor) -> Tensor:
    """In f32 where it is f16, else step by step."""
    if operands[0].dtype is DType.F16:
        return g.cast(g.apply(NAME, *in_f32(g, *operands), **attrs), DType.F16)
    T, B, m, H = operands[0].shape
    if T > MOST_UNROLLED:
        raise Unsupported(
            f"{NAME} of {T} steps and {H} channels",
            "its state does not fit this device's workgroup memory or bindings",
            f"up to {MOST_UNROLLED} steps are written out one by one",
            "cut the sequence and hand the state on",
        )
    made = _walked(g, attrs, operands, g.sum)
    return g.concat([g.reshape(one, (1, B, m, H)) for one in made], axis=0)


def preceding(x: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """What there was before each step of [T, …]: of the first one `first`."""
    g, T = x.graph, x.shape[0]
    start = g.reshape(first, (1, *first.shape))
    if reverse:
        return g.concat([g.narrow(x, 0, 1, T - 1), start], axis=0)
    return g.concat([start, g.narrow(x, 0, 0, T - 1)], axis=0)


def _back(at: Taken) -> list[Tensor | None]:
    """The same, from the other end and transposed; sums over steps of what met there.

    A step's coefficients and weights lie between what comes in (p, of which the first
    part goes through the products) and the gradient of what goes out (q): of a
    transposed one the two change places.
    """
    g, (x, coefs, weights, _), out = at.g, at.inputs, at.out
    T, B, m, H = x.shape
    G = coefs.shape[2] // m - m
    reverse, transposed = at.attrs["reverse"], at.attrs["transposed"]
    if not T:
        return [None, None, None, at.grad[0]]
    # The gradient of what follows a step: of the last one that of the last state.
    ahead = preceding(at.grad[:T], at.grad[T], not reverse)
    zeros = g.expand(g.constant(0, x.dtype), (B, m, H))
    how: dict[str, Any] = {"reverse": not reverse, "transposed": not transposed}
    found = g.apply(NAME, ahead, coefs, weights, zeros, **how)
    q, p = found[:T], out[:T]
    by_state = at.grad[T - 1 if reverse else 0] + found[T]
    by_x = preceding(q, by_state, reverse)
    if not any(at.wants[1:3]):
        return [by_x, None, None, by_state]
    into, of = (q, p) if transposed else (p, q)
    sent = into[:, :, 0]
    got = g.reshape(sent @ weights, (T, B, G, 1, H))
    of_parts = g.reshape(of, (T, B, 1, m, H))
    keeps = g.reshape(of, (T, B, m, 1, H)) * g.reshape(into, (T, B, 1, m, H))
    parts = [keeps, got * of_parts]
    by_coefs = g.concat([g.reshape(one, (T, B, -1, H)) for one in parts], axis=2)
    gives = g.reshape(coefs[:, :, m * m :], (T, B, G, m, H))
    lines = g.reshape(g.sum(gives * of_parts, 3), (T * B, G * H))
    by_weights = g.transpose(g.reshape(sent, (T * B, H)), (1, 0)) @ lines
    return [by_x, by_coefs, by_weights, by_state]


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    T, B, _, H = inputs[0].shape
    return 2.0 * T * B * H * (inputs[1].shape[2] + inputs[2].shape[1])


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    """A product at every step, and a few calls."""
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
    """Over (T, B, m, H, G)."""
    T, B, m, H, G = sizes
    parts = (
        Drawn((T, B, m, H), dtype),
        Drawn((T, B, m * m + G * m, H), dtype, -0.5, 0.5),
        Drawn((H, G * H), dtype, -0.5, 0.5),
        Drawn((B, m, H), dtype),
    )
    return Sample(parts, attrs, note)


registry.register_all(
    Op(
        name=NAME,
        arity=4,
        infer=_infer,
        reference=_reference,
        lower=Kernel(linear_step_recipe, Compose(_build), turns=(2,)),
        attrs=(Attr("reverse", "bool", False), Attr("transposed", "bool", False)),
        flops=_flops,
        tolerance=CARRIED,
        samples=(
            _case((1, 1, 1, 1, 1), note="one step"),
            _case((5, 3, 2, 4, 4)),
            _case((5, 3, 2, 4, 4), transposed=True),
            _case((4, 2, 1, 5, 3), reverse=True),
            _case((4, 2, 1, 5, 3), reverse=True, transposed=True),
            _case((3, 2, 3, 7, 2), reverse=True, transposed=True),
            _case((4, 2, 2, 40, 1), transposed=True),
            _case((0, 2, 2, 3, 1), note="no steps: the state alone"),
            _case((2, 8209, 2, 2, 1), transposed=True, note="many rows"),
            _case((3, 2, 2, 3, 2), DType.F16),
            _case((3, 2, 2, 3, 2), DType.F64, transposed=True),
        ),
        work=_work,
        vjp=_back,
        batch=folding(1, 1, None, 0, out=1),
        doc="What the derivative of a recurrent network comes down to. A state of m "
        "numbers for each of H channels [B, m, H] has x [T, B, m, H] added, which is "
        "the result of a step, and is then mixed: each part of a channel's state by "
        "m·m coefficients with the others', and G products of the first part with "
        "weights [H, G·H] are added to each part by G·m more, coefficients "
        "[T, B, m·m + G·m, H]. `transposed` mixes by the transpose of that, `reverse` "
        "goes from the last step back. The result [T + 1, B, m, H] has the last state "
        "at its end.",
    )
)
