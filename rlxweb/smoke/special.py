"""NaN, infinity, zeros and the largest numbers, and what ops must make of them.

The policy: an engine gives what NumPy gives, up to rounding; below the smallest normal
number it may write 0. Transforms are apart: a value that is not finite spreads over its
row there, and which bins become NaN is the algorithm's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rlxweb.backends.agreement import Agreement, oracle
from rlxweb.backends.evaluate import evaluate
from rlxweb.backends.protocol import Array
from rlxweb.errors import DTypeError
from rlxweb.ir.dtype import DType, cast_to
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import Expr
from rlxweb.ir.op import Op, TensorType, registry
from rlxweb.ir.sample import Sample
from rlxweb.smoke.case import Case, Judge, Trial, types_of

NAN, INF, MOST = np.nan, np.inf, 3.4028234e38
_TEXT = """nan -nan inf -inf 0 -0 1 -1 .5 -.5 2 3 -3 7 3.4028234e38 -3.4028234e38 3e6
-3e6 16777218 88 -88 100 -104 150 1e10 -1e10 1e20 -1e20 .99999994 1.0000001 1e-30
12345.678 8192.5"""
SPECIAL = np.array(_TEXT.split(), np.float32)
# Relative, and below this a GPU may write 0: what is denormal in a step is flushed.
CLOSE, TINY = 3e-5, 1.2e-38
ODD = {"nan": NAN, "inf": INF, "-inf": -INF}
_ELIMINATED = ("solve", "det", "slogdet", "solve_triangular", "cholesky")
"""Where a value that is not finite goes is up to the order of elimination."""
_MOST_ODD = 4096
"""Elements of a sample that one odd value is put into."""


def same(got: Array, want: Array, peak: float = 0.0) -> Array:
    """Elementwise: near where finite in float32, else the same infinity or NaN."""
    with np.errstate(all="ignore"):
        want32, wide = want.astype(got.dtype), want.astype(np.float64)
        off = np.abs(got.astype(np.float64) - wide)
        near = off <= CLOSE * np.maximum(np.abs(wide), peak) + TINY
        near &= np.isfinite(wide)  # any distance is within a part of infinity
    same_odd = (got == want32) | (np.isnan(got) & np.isnan(want32))
    return np.asarray(same_odd | near)


def alike(got: Any, want: Array, dtype: DType, peak: float = 0.0) -> Agreement:
    """A result against NumPy's, by the policy of this module.

    peak   what an absolute error may be relative to, beside the value itself
    """
    if not isinstance(got, np.ndarray):
        return Agreement(f"a {type(got).__name__}, not an array")
    if got.dtype != dtype.numpy or got.shape != want.shape:
        return Agreement(f"{got.shape} {got.dtype} instead of {want.shape} {dtype}")
    if dtype is DType.BF16:
        got, want = cast_to(got, DType.F32), cast_to(want, DType.F32)
    right = same(got, want, peak) if dtype.is_float else got == want
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        error = np.where(np.isfinite(error), error, 0.0)
    most = float(error.max(initial=0.0))
    wrong = int(right.size - np.count_nonzero(right))
    if not wrong:
        return Agreement("", 0, got.size, most)
    at = tuple(int(i) for i in np.argwhere(~right)[0])
    why = (
        f"{wrong} of {got.size} elements are wrong, first at {at}: "
        f"{got[at]} instead of {want[at]} (NumPy's, within {CLOSE:g} of it)"
    )
    return Agreement(why, wrong, got.size, most, first=(at, got[at], want[at]))


# --- one op, every special value --------------------------------------------------

# These are near 0 at a value that is not: an absolute error beside 1.
PEAK = dict.fromkeys(
    ["sin", "cos", "log", "gelu", "gelu_approx", "silu", "swish", "mish"], 0.02
)


def elementwise() -> list[str]:
    """Every op of floats alone whose kernel is one expression."""
    return sorted(
        op.name
        for op in registry
        if isinstance(op.lower, Expr)
        and not op.has("custom")
        and op.name not in ("where", "cast", "bitcast", "psd")
        and _of_floats(op)
    )


def _of_floats(op: Op) -> bool:
    operands = (TensorType((4,), DType.F32),) * int(str(op.arity))
    try:
        op.output_type(operands, op.check_attrs({}))
    except DTypeError:
        return False
    return True


def of_op(name: str, width: int) -> Trial:
    """An elementwise op on every special value or every pair; length 4n + width."""
    grid = np.meshgrid(*[SPECIAL] * int(str(registry.get(name).arity)), indexing="ij")
    size = grid[0].size // 4 * 4 + width
    feeds = {f"x{k}": np.resize(axis.reshape(-1), size) for k, axis in enumerate(grid)}
    graph = Graph(name)
    graph.set_outputs([graph.apply(name, *(graph.input(k, size) for k in feeds))])
    peak = PEAK.get(name, 0.0)
    return _trial(graph, feeds, lambda: oracle(graph, feeds)[0], peak)


FOLDED: dict[str, Callable[[Any], Any]] = {
    "x * 0": lambda x: x * 0.0,
    "0 * x": lambda x: 0.0 * x,
    "x / 0": lambda x: x / 0.0,
    "x / -0": lambda x: x / -0.0,
    "0 / x": lambda x: 0.0 / x,
    "x - x": lambda x: x - x,
    "x / x": lambda x: x / x,
    "x + inf": lambda x: x + float("inf"),
    "x * nan": lambda x: x * float("nan"),
    "(x + a) - a": lambda x: (x + 3e38) - 3e38,
    "(x - a) + a": lambda x: (x - 1e10) + 1e10,
    "a - (a - x)": lambda x: 1e10 - (1e10 - x),
    "(x * a) / a": lambda x: (x * 4.0) / 4.0,
    "(x / a) * a": lambda x: (x / 1e30) * 1e30,
    "|x| - |x|": lambda x: abs(x) - abs(x),
}
"""Arithmetic that a shader compiler may simplify, and must not."""


def of_way(way: str) -> Trial:
    """A way of FOLDED on every special value."""
    graph = Graph(way)
    graph.set_outputs([FOLDED[way](graph.input("x", SPECIAL.size))])

    def want() -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(FOLDED[way](SPECIAL))

    return _trial(graph, {"x": SPECIAL}, want)


def casts(to: str) -> Trial:
    """Every special value in another type: it saturates, NaN becomes 0, and true."""
    graph = Graph("cast")
    graph.set_outputs([graph.cast(graph.input("x", SPECIAL.size), to)])
    feeds = {"x": SPECIAL}
    return _trial(graph, feeds, lambda: np.asarray(evaluate(graph, feeds)[0]))


def _trial(
    graph: Graph, feeds: dict[str, Array], want: Callable[[], Array], peak: float = 0.0
) -> Trial:
    dtype = graph.node(graph.outputs[0]).type.dtype

    def judge(outs: Sequence[Any]) -> Agreement:
        return alike(outs[0], want(), dtype, peak)

    return Trial(graph, feeds, judge)


# --- one odd value among others ---------------------------------------------------


def gathering() -> Iterator[tuple[Op, int]]:
    """Up to five small float samples of every op that brings values together."""
    for op in registry:
        apart = {"leaf", "elementwise", "spectral", "custom"} & set(op.traits)
        if apart or op.name in _ELIMINATED:
            continue
        fit = [at for at, sample in enumerate(op.samples) if _takes_odd(sample)]
        yield from ((op, at) for at in fit[:: max(1, len(fit) // 5)])


def _takes_odd(sample: Sample) -> bool:
    drawn = sample.inputs
    return (
        all(0 < prod(one.shape) < _MOST_ODD for one in drawn)
        and all(one.dtype.nbytes < 8 for one in drawn)
        and any(one.dtype is DType.F32 for one in drawn)
        and all(one.dtype is not DType.F16 for one in drawn)  # not all devices have it
    )


def with_odd(op: Op, sample: Sample, at: int, value: float) -> Trial:
    """The sample with `value` somewhere in input `at`; NumPy in the same types."""
    arrays = [array.copy() for array in sample.draw(1)]
    place = np.random.default_rng(at).integers(0, arrays[at].size)
    arrays[at].reshape(-1)[place] = value
    feeds = {f"x{k}": array for k, array in enumerate(arrays)}
    graph = Graph(op.name)
    xs = [graph.input(name, a.shape, a.dtype) for name, a in feeds.items()]
    graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
    return Trial(graph, feeds, _as_numpy(graph, feeds))


def _as_numpy(graph: Graph, feeds: dict[str, Array]) -> Judge:
    dtype = graph.node(graph.outputs[0]).type.dtype

    def judge(outs: Sequence[Any]) -> Agreement:
        want = np.asarray(evaluate(graph, feeds)[0])
        finite = np.abs(want[np.isfinite(want)].astype(np.float64))
        return alike(outs[0], want, dtype, 40 * float(finite.max(initial=0.0)))

    return judge


# --- the cases --------------------------------------------------------------------


def elementwise_cases(widths: Sequence[int] = (0, 1)) -> Iterator[Case]:
    """Every special value through every expression, and what must not be simplified."""
    for name in elementwise():
        for width in widths:
            way = "one-by-one" if width else "by-fours"
            made = partial(of_op, name, width)
            yield Case(f"special/{name}/{way}", "special", name, made)
    for at, way in enumerate(FOLDED):
        made = partial(of_way, way)
        yield Case(f"special/folded/{at}", "special", "", made, note=way)
    for to in ("i32", "u32", "bool", "f32"):
        made = partial(casts, to)
        yield Case(f"special/cast/{to}", "special", "cast", made, attrs={"to": to})


def odd_cases() -> Iterator[Case]:
    """Sums, norms, rankings …: one odd value in each input in turn."""
    for op, at in gathering():
        sample = op.samples[at]
        floats = [k for k, one in enumerate(sample.inputs) if one.dtype.is_float]
        for k in floats:
            for word, value in ODD.items():
                name = f"special/{op.name}/{at}/x{k}-{word}"
                made = partial(with_odd, op, sample, k, value)
                shapes, note = types_of(sample), f"{word} in x{k}"
                yield Case(name, "special", op.name, made, shapes, sample.attrs, note)
