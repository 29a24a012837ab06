"""One graph on many engines, judged against NumPy in float64.

Owns the engines of the tests (a port per adapter and limits, opened once per process)
and the poison that makes unwritten memory show; the comparison is the package's own,
`rlxweb.backends.agreement`. Knows no op by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.backends.agreement import (
    compare,
    dtypes_of,
    feeds_of,
    one_op,
    oracle,
    rounding,
)
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.jax_arrays import open_jax
from rlxweb.backends.mlx_arrays import open_mlx
from rlxweb.backends.torch_arrays import open_torch
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.backends.webgpu_pipelines import Pipelines
from rlxweb.compile.pipeline import compile_graph
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Command, Usage, Want
from rlxweb.ir.graph import Graph
from rlxweb.limits import Limits
from rlxweb.runtime.feeds import as_input, check_feeds

Array = npt.NDArray[Any]
__all__ = [
    "Array",
    "Engine",
    "PoisonedPort",
    "dtypes_of",
    "engine",
    "feeds_of",
    "judge",
    "lacked",
    "one_op",
    "oracle",
    "rounding",
    "strided",
]


def judge(*arguments: Any) -> str:
    """Why a result is not the right one, or ""; see `compare`."""
    return compare(*arguments).why


SENTINEL = np.full(64, 0x2A2A_2A2A, np.uint32).tobytes()
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
        # Software adapters take long to compile a shader, and little to keep it.
        self.pipelines = Pipelines(port, 1024, 1 << 30, trusts="proven")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        handle: int = self.port.buffer(nbytes, usage, is_fed=is_fed)
        if usage == "storage":
            self.fresh[handle] = -(-nbytes // 4) * 4
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        self.fresh.pop(handle, None)
        self.port.write(handle, offset, data)

    def submit(self, *lists: Sequence[Command]) -> None:
        for handle, nbytes in self.fresh.items():
            self.port.write(handle, 0, memoryview(POISON * (nbytes // 4)))
        self.port.submit(*lists)

    def destroy(self, handle: int) -> None:
        self.fresh.pop(handle, None)
        self.port.destroy(handle)


def on_adapter(want: Want, limits: Limits | None = None, **how: Any) -> WebGpuBackend:
    """A backend on the tests' port of an adapter, which itself enforces `limits`."""
    if limits is not None:
        want = Want(want.backends, want.name, want.features, limits)
    port = _port(want)
    return WebGpuBackend(port, pipelines=port.pipelines, **how)


class GuardedPort:
    """A port whose storage buffers end in sentinels, checked when they are freed.

    Guards (reliability.md L5): every storage buffer is made longer than asked for, the
    end is filled with sentinels, and in the end every sentinel must still be there.
    """

    def __init__(self, port: Any) -> None:
        self.port = port
        self.ends: dict[int, int] = {}
        self.checked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        if usage != "storage":
            return int(self.port.buffer(nbytes, usage, is_fed=is_fed))
        end = -(-nbytes // 4) * 4
        handle: int = self.port.buffer(end + len(SENTINEL), usage)
        self.port.write(handle, end, memoryview(SENTINEL))
        self.ends[handle] = end
        return handle

    def destroy(self, handle: int) -> None:
        end = self.ends.pop(handle, None)
        if end is not None:
            found = drive(self.port.read(handle, end, len(SENTINEL)))
            assert bytes(found) == SENTINEL, f"buffer {handle} was written past its end"
            self.checked += 1
        self.port.destroy(handle)


@dataclass(frozen=True, slots=True)
class Engine:
    """A backend and how plans are made for it."""

    name: str
    backend: Any
    optimise: bool = True

    def run(self, graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
        """The outputs, with every device object freed again."""
        with self.prepared(graph) as run:
            return run(feeds)

    @contextmanager
    def prepared(self, graph: Graph) -> Iterator[Callable[[Any], list[Array]]]:
        """A function that runs the graph, as often as wanted; freed at the end."""
        plan = compile_graph(graph, self.backend.target, optimise=self.optimise)
        program = drive(self.backend.prepare(plan))

        def run(feeds: Mapping[str, Any]) -> list[Array]:
            given = {n: feeds[n] for n in graph.named("input")}
            for name, node in graph.named("param").items():
                array = as_input("param", node, feeds[name])
                drive(self.backend.set_param(program, name, array))
            arrays = check_feeds(graph, graph.named("input"), given)
            outs: list[Array] = drive(self.backend.run(program, arrays))
            return outs

        try:
            yield run
        finally:
            drive(self.backend.release(program))


@cache
def _port(want: Want) -> PoisonedPort:
    port = NativePort()
    drive(port.open(want))
    return PoisonedPort(port)


def guarded(want: Want) -> Engine:
    """The adapter with sentinels behind every buffer."""
    port = _port(want)
    watched: Any = GuardedPort(port)
    return Engine("guarded", WebGpuBackend(watched, pipelines=port.pipelines))


ARRAYS = {"torch-cpu": open_torch, "jax-cpu": open_jax, "mlx": open_mlx}
"""Array libraries whose engines compute on any machine's CPU."""


@cache
def engine(
    want: Want | str | None,
    *,
    limits: Limits | None = None,
    optimise: bool = True,
    variants: bool = True,
) -> Engine:
    """NumPy for None, a library of ARRAYS by name, else the adapter."""
    ways = [] if optimise else ["unoptimised"]
    if not variants:
        ways.append("without variants")
    if want is None:
        numpy = CpuBackend() if variants else CpuBackend(variants=())
        return Engine(" ".join(["NumPy", *ways]), numpy, optimise)
    if isinstance(want, str):
        made = drive(ARRAYS[want]("cpu"))
        if not variants:
            made.variants = ()
        return Engine(" ".join([made.name, *ways]), made, optimise)
    if limits is not None:
        ways.append("shrunk")
    how: dict[str, Any] = {} if variants else {"variants": (), "copies": ()}
    made = on_adapter(want, limits, **how)
    return Engine(" ".join([made.name, *ways]), made, optimise)


def lacked(one: Engine, words: Iterable[str]) -> set[str]:
    """Which types and features of these an engine does not have."""
    has = {dtype.value for dtype in one.backend.target.accepts}
    if isinstance(one.backend, WebGpuBackend):
        has |= one.backend.recipes.hardware.features
    return {*words} - has


# --- what else is compared ---------------------------------------------------------


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
