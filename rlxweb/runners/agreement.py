"""Is an engine right? Samples of ops, run on it and judged by NumPy in float64.

Owns the cases (one op on one of its samples), what each must give, and the comparison.
The tests, the command line and the browser page all judge by what is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rlxweb.backends.array import evaluate
from rlxweb.backends.protocol import Array, Backend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import DTypeError, Unsupported
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import HostOnly
from rlxweb.ir.op import Op, Tolerance, registry
from rlxweb.ir.sample import Sample

# A float16 holds 11 bits; NumPy also sums in it, a GPU sums in float32.
HALF = Tolerance(rtol=4e-3, atol=4e-3, relative_to_peak=True)


def checked_ops() -> list[Op]:
    """Every op of the vocabulary that computes something, by name."""
    return sorted((op for op in registry if not op.has("leaf")), key=lambda op: op.name)


def one_op(op: Op, sample: Sample, arrays: Sequence[Array]) -> Graph:
    """The op on inputs x0, x1 … of the sample's types."""
    graph = Graph(f"{op.name} sample")
    named = feeds_of(arrays).items()
    xs = [graph.input(name, array.shape, array.dtype) for name, array in named]
    graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
    return graph


def feeds_of(arrays: Sequence[Array]) -> dict[str, Array]:
    """The arrays by the names that `one_op` gives its inputs."""
    return {f"x{k}": array for k, array in enumerate(arrays)}


def dtypes_of(graph: Graph) -> set[DType]:
    """The element types of all nodes."""
    return {node.type.dtype for node in graph.nodes()}


def oracle(graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
    """Every output in float64, by the ops' references."""
    return [np.asarray(a) for a in evaluate(graph, feeds, promote=True)]


@dataclass(frozen=True, slots=True)
class Case:
    """An op on one of its samples: the graph of the two, and arrays to feed it."""

    op: Op
    sample: Sample
    graph: Graph
    feeds: dict[str, Array]

    @property
    def out(self) -> DType:
        return self.graph.node(self.graph.outputs[0]).type.dtype


def case_of(op: Op, at: int) -> Case:
    """The case of sample number `at`; the same arrays every time."""
    sample = op.samples[at]
    arrays = sample.draw(at)
    return Case(op, sample, one_op(op, sample, arrays), feeds_of(arrays))


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near a result is to what it must be.

    why        "" when every element is within its tolerance, else the reason
    wrong      elements that are not, of `size`
    max_error  the largest |got - want| where both are finite
    share      the largest error in parts of its own allowance; 0 when there is none
    allowed    the allowance of that element
    first      index, result and right value of the first wrong element
    """

    why: str = ""
    wrong: int = 0
    size: int = 0
    max_error: float = 0.0
    share: float = 0.0
    allowed: float = 0.0
    first: tuple[tuple[int, ...], Any, Any] | None = None


def compare(
    got: Any, want: Array, dtype: DType, tolerance: Tolerance, extra: Any = 0.0
) -> Agreement:
    """A result against the right one.

    Integers, bools and non-finite values must be equal. `extra` is a further allowance
    per element (reliability.md A1: what NumPy in float32 is off by, times eight).
    """
    if not isinstance(got, np.ndarray):
        return Agreement(f"a {type(got).__name__}, not an array")
    if got.dtype != dtype.numpy or got.shape != want.shape:
        return Agreement(f"{got.shape} {got.dtype} instead of {want.shape} {dtype}")
    if got.size == 0:
        return Agreement()
    have, right = got.astype(np.float64), want.astype(np.float64)
    if dtype.is_float:
        tolerance = HALF if dtype is DType.F16 else tolerance
        allowed = np.broadcast_to(_allowed(right, tolerance, extra), right.shape)
        right_here, rule = _agrees(have, right, allowed), f"allowed {tolerance}"
    else:
        allowed = np.zeros(right.shape)
        right_here, rule = got == want, "must be equal"
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(have - right)
        error = np.where(np.isfinite(error), error, 0.0)
        share = np.where(error > 0, error / allowed, 0.0)
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    numbers = (float(error.max()), float(share[worst]), float(allowed[worst]))
    wrong = int(right_here.size - np.count_nonzero(right_here))
    if not wrong:
        return Agreement("", 0, got.size, *numbers)
    at = tuple(int(i) for i in np.argwhere(~right_here)[0])
    why = (
        f"{wrong} of {got.size} elements are wrong, first at {at}: "
        f"{got[at]!r} instead of {want[at]!r} ({rule})"
    )
    return Agreement(why, wrong, got.size, *numbers, (at, got[at], want[at]))


def _allowed(right: Array, tolerance: Tolerance, extra: Any) -> Array:
    peak = 1.0
    if tolerance.relative_to_peak:
        peak = float(np.abs(right[np.isfinite(right)]).max(initial=0.0))
    with np.errstate(invalid="ignore"):
        allowed = tolerance.atol * peak + tolerance.rtol * np.abs(right)
        return np.asarray(np.maximum(allowed, extra))


def _agrees(have: Array, right: Array, allowed: Array) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        near = np.abs(have - right) <= allowed
    same = (have == right) | (np.isnan(have) & np.isnan(right))
    return np.asarray(np.where(np.isfinite(right), near, same), np.bool_)


Word = Literal["right", "wrong", "refused"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an engine made of a case.

    word       "right"; "wrong", also for an error it should not have raised; or
               "refused": the engine has not that type or op and says so
    why        the reason, "" when right
    raised     the error itself, if there was one
    agreement  the comparison, when there was a result
    """

    word: Word
    why: str = ""
    raised: Exception | None = None
    agreement: Agreement | None = None
    prepare_ns: int = 0
    run_ns: int = 0


async def check_case(
    case: Case, backend: Backend, spoil: Callable[[Array], Array] | None = None
) -> Verdict:
    """Run a case on an open backend and judge the result.

    spoil   changes the result before it is judged: the proof that wrong ones are seen
    """
    missing = dtypes_of(case.graph) - backend.target.dtypes
    try:
        got, prepare_ns, run_ns = await _computed(case, backend)
    except Exception as error:  # a driver's own failure is a verdict, not the end
        refused = _may_refuse(case, bool(missing), error)
        said = str(error) if refused else f"{type(error).__name__}: {error}"
        return Verdict("refused" if refused else "wrong", said, error)
    if missing:
        names = ", ".join(sorted(d.value for d in missing))
        return Verdict("wrong", f"it computed in {names}, which it has not")
    spoiled = got if spoil is None else spoil(got)
    want = oracle(case.graph, case.feeds)[0]
    found = compare(spoiled, want, case.out, case.op.tolerance)
    word: Word = "wrong" if found.why else "right"
    return Verdict(word, found.why, None, found, prepare_ns, run_ns)


async def _computed(case: Case, backend: Backend) -> tuple[Array, int, int]:
    """The result, and how long making the program and running it took."""
    begun = perf_counter_ns()
    program = await backend.prepare(compile_graph(case.graph, backend.target))
    try:
        ready = perf_counter_ns()
        outs = await backend.run(program, case.feeds)
        return outs[0], ready - begun, perf_counter_ns() - ready
    finally:
        await backend.release(program)


def _may_refuse(case: Case, lacks_dtype: bool, error: Exception) -> bool:
    if lacks_dtype:
        return isinstance(error, DTypeError)
    return isinstance(error, Unsupported) and isinstance(case.op.lower, HostOnly)
