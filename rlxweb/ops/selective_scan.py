"""The selective scan of state-space models (Mamba): a recurrence whose rates vary.

h_t = exp(delta_t a) h_(t-1) + delta_t x_t b_t and y_t = c_t · h_t, for each channel a
state of N numbers (Gu and Dao 2023, the discretisation of their equation 4 with b by
Euler, as their implementation has it). What stands around it (softplus of delta, skip,
gate) is elementwise and the builder's. The calls are laid out in `scan_calls.py`.
"""

from __future__ import annotations

from typing import Any

from rlxweb.errors import Unsupported
from rlxweb.ir.batching import folding
from rlxweb.ir.derivative import Taken
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Compose, Kernel
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.ir.pullback import pulled_back
from rlxweb.ir.sample import Drawn, Sample
from rlxweb.ir.shape import bad_shape, show
from rlxweb.ir.tensor import Tensor
from rlxweb.ops.cell_steps import CARRIED, MOST_UNROLLED
from rlxweb.ops.elementwise import FLOATS, need, same_dtype
from rlxweb.ops.linalg import widened
from rlxweb.ops.norm import in_f32
from rlxweb.recipes.scan_calls import scan_recipe


def _infer(types: Types, attrs: Attrs) -> TensorType:
    dtype = same_dtype(types)
    need(types, FLOATS)
    x, a = types[0], types[2]
    if x.rank != 3 or a.rank != 2 or not a.shape[1]:
        raise bad_shape(
            f"x {show(x.shape)} and a {show(a.shape)}",
            "x is [B, L, D] and a [D, N], with 1 number of state or more",
        )
    (B, L, D), N = x.shape, a.shape[1]
    names = ("x", "delta", "a", "b", "c", "state")
    sizes = ((B, L, D), (B, L, D), (D, N), (B, L, N), (B, L, N), (B, N, D))
    for name, one, want in zip(names, types, sizes, strict=False):
        if one.shape != want:
            raise bad_shape(f"{name} {show(one.shape)}", f"it is {show(want)} here")
    return TensorType((B, L + N, D), dtype)


def _reference(xp: Any, attrs: Attrs, *operands: Any) -> Any:
    x, delta, a, b, c, *state = (widened(xp, one) for one in operands)
    (B, L, D), N = x.shape, a.shape[1]
    rates = xp.reshape(xp.swapaxes(a, 0, 1), (1, N, D))
    h = state[0] if state else xp.zeros((B, N, D), dtype=x.dtype)
    made = []
    for t in range(L):
        step = delta[:, t : t + 1, :]
        into = xp.reshape(b[:, t, :], (B, N, 1)) * (step * x[:, t : t + 1, :])
        h = xp.exp(step * rates) * h + into
        read = xp.reshape(c[:, t, :], (B, 1, N))
        made.append(xp.matmul(read, h))
    return xp.asarray(xp.concat([*made, h], axis=1), dtype=operands[0].dtype)


def _build(g: Graph, attrs: Attrs, *operands: Tensor) -> Tensor:
    """In f32 where it is f16, else step by step."""
    if operands[0].dtype is DType.F16:
        made = g.apply("selective_scan", *in_f32(g, *operands))
        return g.cast(made, DType.F16)
    x, delta, a, b, c, *state = operands
    (B, L, D), N = x.shape, a.shape[1]
    if L > MOST_UNROLLED:
        raise Unsupported(
            f"selective_scan of {L} steps and a state of {N}",
            "its state does not fit this device's registers or bindings",
            f"up to {MOST_UNROLLED} steps are written out one by one",
            "cut the sequence and hand the state on",
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


def _back(at: Taken) -> list[Tensor | None]:
    """By way of the states of all steps side by side, from a scan without products."""
    g = at.g
    if not at.x.shape[1]:  # the result is the state
        return [*[None] * 5, at.grad][: len(at.inputs)]
    names = [g.identity(one) for one in at.inputs]
    asked = [x for x, wanted in zip(names, at.wants, strict=True) if wanted]
    made = _with_all_states(g, *names)
    found = iter(pulled_back(g, [made], [at.grad], asked, "selective_scan"))
    return [next(found) if wanted else None for wanted in at.wants]


def _with_all_states(g: Graph, *operands: Tensor) -> Tensor:
    """The op as elementwise work around a linear scan, [B, L, N, D] large."""
    x, delta, a, b, c, *state = in_f32(g, *operands)
    (B, L, D), N = x.shape, a.shape[1]
    step = g.reshape(delta, (B, L, 1, D))
    decays = g.exp(step * g.transpose(a, (1, 0)))
    into = g.reshape(b, (B, L, N, 1)) * (step * g.reshape(x, (B, L, 1, D)))
    if state:  # as a step before the others; what it would decay by is of no account
        first = g.reshape(state[0], (B, 1, N, D))
        into = g.concat([first, into], axis=1)
        decays = g.concat([g.stop_gradient(first), decays], axis=1)
    lines = (g.reshape(one, (B, -1, N * D)) for one in (into, decays))
    h = g.reshape(g.apply("linear_scan", *lines), into.shape)
    steps = h[:, 1:] if state else h
    y = g.sum(g.reshape(c, (B, L, N, 1)) * steps, 2)
    made = g.concat([y, h[:, -1]], axis=1)
    return made if made.dtype is operands[0].dtype else g.cast(made, DType.F16)


def _flops(inputs: Types, out: TensorType, attrs: Attrs) -> float:
    return 16.0 * inputs[0].numel * inputs[2].shape[1]


def _work(inputs: Types, out: TensorType, attrs: Attrs) -> tuple[str, dict[str, int]]:
    """Each number of the state costs at every step what some products do."""
    (B, L, D), N = inputs[0].shape, inputs[2].shape[1]
    size = {"steps": L, "m": B, "k": 8 * N, "n": D}
    return "recurrence", {**size, "calls": 12, "read": 0}


def _case(
    sizes: tuple[int, int, int, int],
    state: bool = False,
    dtype: DType = DType.F32,
    note: str = "",
) -> Sample:
    """Over (B, L, D, N)."""
    B, L, D, N = sizes
    parts = [
        Drawn((B, L, D), dtype),
        Drawn((B, L, D), dtype, 0.01, 1.0),
        Drawn((D, N), dtype, -3.0, -0.1),
        Drawn((B, L, N), dtype),
        Drawn((B, L, N), dtype),
    ]
    parts += [Drawn((B, N, D), dtype)] if state else []
    return Sample(tuple(parts), note=note)


registry.register_all(
    Op(
        name="selective_scan",
        arity=(5, 6),
        infer=_infer,
        reference=_reference,
        lower=Kernel(scan_recipe, Compose(_build)),
        flops=_flops,
        tolerance=CARRIED,
        samples=(
            _case((1, 1, 1, 1), True, note="one step"),
            _case((2, 9, 5, 3), True),
            _case((2, 9, 5, 3)),
            _case((3, 40, 7, 16)),
            _case((2, 3, 5, 70), True, note="more state than registers hold"),
            _case((2, 0, 5, 3), True, note="no steps: the state alone"),
            _case((0, 4, 5, 3)),
            _case((16_411, 2, 5, 2), note="many rows"),
            _case((2, 3, 4, 2), True, DType.F16),
            _case((2, 3, 4, 2), True, DType.F64),
        ),
        work=_work,
        vjp=_back,
        batch=folding(0, 0, None, 0, 0, 0),
        doc="The selective scan of Mamba: h = exp(delta a) h + delta x b, y = c · h, "
        "step by step for every channel. x and delta [B, L, D], a [D, N], b and c "
        "[B, L, N], and, if wanted, a first state [B, N, D]. The result [B, L + N, D] "
        "is y of every step and then the last state.",
    )
)
