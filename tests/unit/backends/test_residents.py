"""Arrays that stay on an engine: the seam, for every kind of engine.

What a GPU is told is read from the fake's record; what comes of it is compared with
NumPy on real adapters.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.protocol import Array, Backend, Program, Resident
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.errors import (
    GraphError,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from tests.fake_port import Failure
from tests.ports import compute, fake, native, prepared, scaled, source_of
from tests.threads import at_once

X = np.arange(12, dtype=np.float32).reshape(4, 3)
ONES = np.ones((4, 3), np.float32)


class Plain(Backend):
    """An engine that says nothing of arrays that stay: NumPy, wrapped."""

    name = "plain"
    target = CpuBackend.target

    def __init__(self) -> None:
        self.inner = CpuBackend()

    async def prepare(self, plan: Any) -> Program:
        return await self.inner.prepare(plan)

    async def set_param(self, program: Program, name: str, value: Array) -> None:
        await self.inner.set_param(program, name, value)

    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        return await self.inner.run(program, feeds)

    async def release(self, program: Program) -> None:
        await self.inner.release(program)


def on_a_fake(*fail: Failure, **options: Any) -> WebGpuBackend:
    kernels = {source_of(scaled()): compute}
    return WebGpuBackend(fake(*fail, kernels=kernels, **options))


@cache
def on_torch() -> Backend:
    from rlxweb.backends.torch_arrays import open_torch

    return drive(open_torch())


@cache
def on_jax() -> Backend:
    from rlxweb.backends.jax_arrays import open_jax

    return drive(open_jax())


@cache
def on_mlx() -> Backend:
    from rlxweb.backends.mlx_arrays import open_mlx

    return drive(open_mlx())


ENGINES: dict[str, Callable[[], Any]] = {
    "plain": Plain,
    "cpu": CpuBackend,
    "torch": on_torch,
    "jax": on_jax,
    "mlx": on_mlx,
    "fake": on_a_fake,
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]()


def with_ones(engine: Any) -> Any:
    program = prepared(engine, scaled())
    drive(engine.set_param(program, "w", ONES))
    return program


def kept(engine: Any, program: Any, x: Any, *keep: bool) -> list[Any]:
    return drive(engine.run_resident(program, {"x": x}, keep or (True,)))


# --- every engine -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ENGINES)
@settings(max_examples=30)
@given(
    array=st.sampled_from("f4 f2 i4 u4 ?".split()).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
            elements=None if dtype[0] != "f" else st.integers(-9, 9).map(float),
        )
    )
)
def test_what_is_put_comes_back(kind: str, array: Any) -> None:
    """Arrays of any shape and type come back, and are not those that were given."""
    engine = ENGINES[kind]()
    want, one = array.copy(), drive(engine.put(array))
    array[...] = 7
    got = drive(engine.get(one))
    np.testing.assert_array_equal(got, want, strict=True)
    assert (one.engine, one.shape, one.dtype) == (engine, want.shape, want.dtype)
    assert engine.holds(one)
    drive(engine.free(one))


def test_a_strided_array_is_put_as_it_reads(engine: Any) -> None:
    """Views, turned and reversed, keep their order."""
    for view in (X.T, X[::-1], X[:, ::2]):
        np.testing.assert_array_equal(drive(engine.get(drive(engine.put(view)))), view)


def test_a_run_takes_and_leaves_arrays(engine: Any) -> None:
    """What comes back from one run is fed to the next."""
    program = with_ones(engine)
    x = drive(engine.put(X))
    for _ in range(3):
        (x,) = kept(engine, program, x)
        assert isinstance(x, Resident)
    np.testing.assert_array_equal(drive(engine.get(x)), X * 8 + 7)
    (mixed,) = kept(engine, program, x, False)
    np.testing.assert_array_equal(mixed, X * 16 + 15)
    mixed[...] = 0  # it is the caller's
    np.testing.assert_array_equal(drive(engine.get(x)), X * 8 + 7)


def test_a_param_is_handed_over(engine: Any) -> None:
    """The array itself stays what it is, whatever the param becomes."""
    program, w = prepared(engine, scaled()), drive(engine.put(X))
    drive(engine.set_param_resident(program, "w", w))
    np.testing.assert_array_equal(drive(engine.run(program, {"x": X}))[0], X * 3)
    drive(engine.set_param(program, "w", ONES))
    np.testing.assert_array_equal(drive(engine.get(w)), X)


def test_nothing_changes_what_stays(engine: Any) -> None:
    """A later run, the array fed and the array read change nothing that stays."""
    graph = Graph("itself")
    x = graph.input("x", (4, 16))
    graph.set_outputs([x, x])
    program, mine = prepared(engine, graph), aligned()
    want = mine.copy()
    outs = drive(engine.run_resident(program, {"x": mine}, [True, True]))
    mine[...] = 5
    feeds = {"x": outs[0]}
    back, _ = drive(engine.run_resident(program, feeds, [False, True]))
    back[...] = 6
    read = drive(engine.get(outs[0]))
    if read.flags.writeable:
        read[...] = 7
    for out in outs:
        np.testing.assert_array_equal(drive(engine.get(out)), want)


def aligned() -> Any:
    """An array (4, 16) on a multiple of 64 bytes: JAX takes such memory as it is."""
    raw = np.arange(80, dtype=np.float32)
    at = (-raw.ctypes.data % 64) // 4
    return raw[at : at + 64].reshape(4, 16)


def test_a_part_is_not_moved(engine: Any) -> None:
    """A part is some rows, in any shape; it outlives the name of the whole."""
    whole = drive(engine.put(X))
    part = drive(engine.part(whole, 3, (2, 3)))
    flat = drive(engine.part(part, 3, (3,)))
    del whole
    gc.collect()
    np.testing.assert_array_equal(drive(engine.get(part)), X[1:3])
    np.testing.assert_array_equal(drive(engine.get(flat)), X[2])


def test_what_lies_elsewhere_is_refused(engine: Any) -> None:
    """An array elsewhere is refused by both engines' names and moved by nobody."""
    other = on_a_fake() if not isinstance(engine, WebGpuBackend) else CpuBackend()
    far = drive(other.put(X))
    program = with_ones(engine)
    assert not engine.holds(far)
    for verb in (
        lambda: engine.get(far),
        lambda: engine.part(far, 0, (1,)),
        lambda: engine.set_param_resident(program, "w", far),
        lambda: engine.run_resident(program, {"x": far}, [True]),
    ):
        said = re.escape(f"on {engine.name}: it lies on {other.name}; ")
        with pytest.raises(GraphError, match=said):
            drive(verb())


def test_threads_share_what_stays(engine: Any) -> None:
    """Threads share an array that stays, each with its own results."""
    program, one = with_ones(engine), drive(engine.put(X))

    def work() -> None:
        (out,) = kept(engine, program, one)
        np.testing.assert_array_equal(drive(engine.get(out)), X * 2 + 1)

    at_once([work] * 8)


# --- in the host's memory ---------------------------------------------------------


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0",
    reason="NumPy before 2.1 hands no array that may not be written to DLPack",
)
@pytest.mark.parametrize("kind", ["plain", "cpu"])
def test_a_resident_in_host_memory_cannot_be_written(kind: str) -> None:
    """Reading it costs nothing and gives an array that refuses writes."""
    engine = ENGINES[kind]()
    one = drive(engine.put(X))
    got = drive(engine.get(one))
    assert np.may_share_memory(got, drive(engine.get(one)))
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1
    shared = np.from_dlpack(engine.lend(one)) if kind == "cpu" else engine.lend(one)
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 1
    copy = engine.lend(one, copy=True)
    copy[...] = 9
    np.testing.assert_array_equal(drive(engine.get(one)), X)


def test_an_array_of_another_library_is_taken_where_it_lies() -> None:
    """An array of another library is copied by from_dlpack, if the engine has one."""
    assert drive(CpuBackend().take(X)) is None
    asked: list[object] = []

    class Taking(CpuBackend):
        def __init__(self) -> None:
            super().__init__()
            self._from_dlpack = self.borrowed

        def borrowed(self, given: Any) -> Any:
            asked.append(given)
            return np.from_dlpack(given)

    class Next:
        """An array on another device, of the same kind."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 1

    assert drive(Taking().take(Next())) is None
    theirs = X.copy()
    one = drive(Taking().take(theirs))
    theirs[...] = 0
    assert one is not None
    assert (len(asked), one.shape, one.dtype) == (1, (4, 3), np.float32)
    np.testing.assert_array_equal(drive(one.engine.get(one)), X)


# --- on real drivers --------------------------------------------------------------


def average() -> Graph:
    """A running average of x, and whether it is above one half."""
    graph = Graph("average")
    x, mean = graph.input("x", (5, 7)), graph.param("mean", (5, 7))
    new = mean * 0.75 + x * 0.25
    graph.set_outputs([new, new > 0.5])
    return graph


@pytest.fixture(scope="module")
def real(adapter: Want) -> Iterator[WebGpuBackend]:
    with native(adapter) as port:
        yield WebGpuBackend(port)


@pytest.mark.requires_wgpu
def test_state_stays_for_hundreds_of_runs(real: WebGpuBackend) -> None:
    """A running average is right to the last bit, and nothing piles up."""
    program = prepared(real, average())
    want = np.zeros((5, 7), np.float32)
    drive(real.set_param(program, "mean", want))
    xs = np.random.default_rng(1).random((8, 5, 7)).astype(np.float32)
    fed = [drive(real.put(x)) for x in xs]
    live = 0
    for at in range(200):
        mean, above = drive(real.run_resident(program, {"x": fed[at % 8]}, [True] * 2))
        drive(real.set_param_resident(program, "mean", mean))
        want = want * np.float32(0.75) + xs[at % 8] * np.float32(0.25)
        live = live or len(real.port.live)
    gc.collect()
    np.testing.assert_allclose(drive(real.get(mean)), want, rtol=1e-6)
    np.testing.assert_array_equal(drive(real.get(above)), drive(real.get(mean)) > 0.5)
    assert len(real.port.live) <= live + 4
    drive(real.release(program))


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 5), (257,), (2, 3, 4)])
def test_every_stored_form_goes_round(
    real: WebGpuBackend, shape: tuple[int, ...]
) -> None:
    """Halves two to a word and bools a word each, in, through a kernel and out."""
    assert len(real.target.accepts) >= 4
    for dtype in real.target.accepts:
        graph = Graph("round")
        x = graph.input("x", shape, dtype)
        graph.set_outputs([x, graph.eq(x, x)])
        program = prepared(real, graph)
        rng = np.random.default_rng(2)
        array = rng.integers(0, 2, shape).astype(dtype.numpy)
        feeds = {"x": drive(real.put(array))}
        same, alike = drive(real.run_resident(program, feeds, [True, True]))
        np.testing.assert_array_equal(drive(real.get(same)), array, strict=True)
        np.testing.assert_array_equal(drive(real.get(alike)), np.ones(shape, bool))
        drive(real.release(program))
