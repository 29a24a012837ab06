"""One graph on many engines, judged against NumPy in float64.

Owns the engines of the tests (a port per adapter and limits, opened once per process),
the poison that makes unwritten memory show, and the comparison. Knows no op by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.backends.array import evaluate
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.gpu.limits import Limits
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Command, Usage, Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, Tolerance
from rlxweb.ir.sample import Sample
from rlxweb.runtime.feeds import as_input, check_feeds

Array = npt.NDArray[Any]

# A float16 holds 11 bits; NumPy also sums in it, a GPU sums in float32.
HALF = Tolerance(rtol=4e-3, atol=4e-3, relative_to_peak=True)
# As float32 a NaN, as float16 two of them, as an integer far from any answer.
POISON = np.uint32(0x7FE0_7FE1).tobytes()


class PoisonedPort:
    """A port whose buffers hold NaN before each submission unless the host wrote them.

    A pooled buffer is not zeroed, so an element that a kernel forgets, or reads before
    it is written, must show; drivers hide both by handing out zeros.
    """

    def __init__(self, port: Any) -> None:
        self.port = port
        self.fresh: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def buffer(self, nbytes: int, usage: Usage) -> int:
        handle: int = self.port.buffer(nbytes, usage)
        if usage == "storage":
            self.fresh[handle] = -(-nbytes // 4) * 4
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        self.fresh.pop(handle, None)
        self.port.write(handle, offset, data)

    def submit(self, commands: Sequence[Command]) -> None:
        for handle, nbytes in self.fresh.items():
            self.port.write(handle, 0, memoryview(POISON * (nbytes // 4)))
        self.port.submit(commands)

    def destroy(self, handle: int) -> None:
        self.fresh.pop(handle, None)
        self.port.destroy(handle)


@dataclass(frozen=True, slots=True)
class Engine:
    """A backend and how plans are made for it."""

    name: str
    backend: Any
    optimise: bool = True

    def run(self, graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
        """The outputs, with every device object freed again."""
        plan = compile_graph(graph, self.backend.target, optimise=self.optimise)
        program = drive(self.backend.prepare(plan))
        try:
            given = {n: feeds[n] for n in graph.named("input")}
            for name, node in graph.named("param").items():
                array = as_input("param", node, feeds[name])
                drive(self.backend.set_param(program, name, array))
            arrays = check_feeds(graph, graph.named("input"), given)
            outs: list[Array] = drive(self.backend.run(program, arrays))
            return outs
        finally:
            drive(self.backend.release(program))


@cache
def _port(want: Want) -> PoisonedPort:
    port = NativePort()
    drive(port.open(want))
    return PoisonedPort(port)


@cache
def engine(
    want: Want | None,
    *,
    limits: Limits | None = None,
    optimise: bool = True,
    variants: bool = True,
) -> Engine:
    """NumPy for None, else the adapter; the port itself enforces `limits`."""
    ways = [] if optimise else ["unoptimised"]
    if want is None:
        return Engine(" ".join(["NumPy", *ways]), CpuBackend(), optimise)
    if limits is not None:
        want = Want(want.backends, want.name, want.features, limits)
        ways.append("shrunk")
    if not variants:
        ways.append("without variants")
    made = WebGpuBackend(_port(want), variants=variants)
    return Engine(" ".join([made.name, *ways]), made, optimise)


# --- graphs of one op -------------------------------------------------------------


def one_op(op: Op, sample: Sample, arrays: Sequence[Array]) -> Graph:
    """The op on inputs x0, x1 … of the sample's types."""
    graph = Graph(f"{op.name} sample")
    xs = [
        graph.input(f"x{k}", array.shape, array.dtype) for k, array in enumerate(arrays)
    ]
    graph.set_outputs([graph.apply(op.name, *xs, **sample.attrs)])
    return graph


def feeds_of(arrays: Sequence[Array]) -> dict[str, Array]:
    return {f"x{k}": array for k, array in enumerate(arrays)}


def dtypes_of(graph: Graph) -> set[DType]:
    return {node.type.dtype for node in graph.nodes()}


def oracle(graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
    """Every output in float64, by the ops' references."""
    return [np.asarray(a) for a in evaluate(graph, feeds, promote=True)]


def rounding(graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
    """How far NumPy in the graph's own types is from float64, per element."""
    plain = evaluate(graph, feeds)
    return [
        np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))
        for a, b in zip(plain, oracle(graph, feeds), strict=True)
    ]


def strided(array: Array, seed: int = 0) -> Array:
    """Equal values lying differently: transposed, reversed and with gaps in memory."""
    if not array.ndim:
        return array
    wider = np.empty(tuple(2 * d + 1 for d in array.shape[::-1]), array.dtype)
    view = wider[tuple(slice(1, 2 * d + 1, 2) for d in array.shape[::-1])].T
    if seed % 2:
        view = view[tuple(slice(None, None, -1) for _ in array.shape)]
    view[...] = array
    return view


# --- judging ----------------------------------------------------------------------


def judge(
    got: Any, want: Array, dtype: DType, tolerance: Tolerance, extra: Any = 0.0
) -> str:
    """Why `got` is not `want`, or "".

    Integers, bools and non-finite values must be equal. `extra` is a further allowance
    per element (reliability.md A1: what NumPy in float32 is off by, times eight).
    """
    if not isinstance(got, np.ndarray):
        return f"a {type(got).__name__}, not an array"
    if got.dtype != dtype.numpy or got.shape != want.shape:
        return f"{got.shape} {got.dtype} instead of {want.shape} {dtype}"
    if got.size == 0:
        return ""
    if not dtype.is_float:
        return _first(got, want, got != want, "must be equal")
    if dtype is DType.F16:
        tolerance = HALF
    have, right = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(right)
    peak = float(np.abs(right[finite]).max(initial=0.0))
    atol = tolerance.atol * (peak if tolerance.relative_to_peak else 1.0)
    with np.errstate(invalid="ignore"):
        allowed = np.maximum(atol + tolerance.rtol * np.abs(right), extra)
        near = np.abs(have - right) <= allowed
        same = (have == right) | (np.isnan(have) & np.isnan(right))
    return _first(got, want, ~np.where(finite, near, same), f"allowed {tolerance}")


def _first(got: Array, want: Array, wrong: Array, rule: str) -> str:
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {got.size} elements are wrong, first at {at}: "
        f"{got[at]!r} instead of {want[at]!r} ({rule})"
    )
