"""Device arrays: the protocol's contract, for every kind of engine.

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
from rlxweb.core.errors import (
    GraphError,
)
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.host_engine import HostEngine
from rlxweb.engines.protocol import (
    Array,
    DeviceBuffer,
    Engine,
    EngineIdentity,
)
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.fake_gpu_port import InjectedFailure
from tests.gpu_ports import (
    compute_scaled,
    open_fake_port,
    open_native_port,
    prepare_graph,
    scaled_graph,
    shader_source,
)
from tests.run_in_threads import run_concurrently

X = np.arange(12, dtype=np.float32).reshape(4, 3)
ONES = np.ones((4, 3), np.float32)


class PlainEngine(HostEngine):
    """Engine without device-array support: the references in NumPy."""

    identity = EngineIdentity("plain")
    target = CpuEngine.target

    def compute(self, program: Any, values: Mapping[str, Array]) -> list[Array]:
        return evaluate(program.plan.graph, values)


def fake_webgpu_engine(*fail: InjectedFailure, **options: Any) -> WebGpuEngine:
    kernels = {shader_source(scaled_graph()): compute_scaled}
    return WebGpuEngine(open_fake_port(*fail, kernels=kernels, **options))


@cache
def open_torch_engine() -> Engine:
    from rlxweb.engines.torch_engine import open_torch

    return run_blocking(open_torch())


@cache
def open_jax_engine() -> Engine:
    from rlxweb.engines.jax_engine import open_jax

    return run_blocking(open_jax())


@cache
def open_mlx_engine() -> Engine:
    from rlxweb.engines.mlx_engine import open_mlx

    return run_blocking(open_mlx())


ENGINES: dict[str, Callable[[], Any]] = {
    "plain": PlainEngine,
    "cpu": CpuEngine,
    "torch": open_torch_engine,
    "jax": open_jax_engine,
    "mlx": open_mlx_engine,
    "fake": fake_webgpu_engine,
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]()


def prepare_with_ones(engine: Any) -> Any:
    """Prepare `scaled` with a param of ones."""
    program = prepare_graph(engine, scaled_graph())
    run_blocking(program.set_param("w", ONES))
    return program


def run_keeping(engine: Any, program: Any, x: Any, *keep: bool) -> list[Any]:
    """Run the program; outputs flagged in `keep` (default: the first) stay on the
    device.
    """
    return run_blocking(engine.run(program, {"x": x}, keep or (True,)))


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
def test_put_and_get_round_trip(kind: str, array: Any) -> None:
    """Arrays of any shape and dtype come back, and are copies of the caller's."""
    engine = ENGINES[kind]()
    want, device_array = array.copy(), run_blocking(engine.put(array))
    array[...] = 7
    got = run_blocking(engine.get(device_array))
    np.testing.assert_array_equal(got, want, strict=True)
    assert (device_array.engine, device_array.shape, device_array.dtype) == (
        engine,
        want.shape,
        want.dtype,
    )
    assert device_array.is_usable_by(engine)
    device_array.free()


def test_strided_array_keeps_its_order(engine: Any) -> None:
    """Transposed, reversed and strided views keep their order."""
    for view in (X.T, X[::-1], X[:, ::2]):
        np.testing.assert_array_equal(
            run_blocking(engine.get(run_blocking(engine.put(view)))), view
        )


def test_run_accepts_and_returns_device_arrays(engine: Any) -> None:
    """The output of one run is the input of the next."""
    program = prepare_with_ones(engine)
    x = run_blocking(engine.put(X))
    for _ in range(3):
        (x,) = run_keeping(engine, program, x)
        assert isinstance(x, DeviceBuffer)
    np.testing.assert_array_equal(run_blocking(engine.get(x)), X * 8 + 7)
    (mixed,) = run_keeping(engine, program, x, False)
    np.testing.assert_array_equal(mixed, X * 16 + 15)
    mixed[...] = 0  # it is the caller's
    np.testing.assert_array_equal(run_blocking(engine.get(x)), X * 8 + 7)


def test_param_from_device_array(engine: Any) -> None:
    """The device array stays unchanged, whatever the param becomes."""
    program, w = prepare_graph(engine, scaled_graph()), run_blocking(engine.put(X))
    run_blocking(program.set_param("w", w))
    np.testing.assert_array_equal(run_blocking(engine.run(program, {"x": X}))[0], X * 3)
    run_blocking(program.set_param("w", ONES))
    np.testing.assert_array_equal(run_blocking(engine.get(w)), X)


def test_device_arrays_are_immutable(engine: Any) -> None:
    """Later runs, and writes to the input or to a result, change no device array."""
    graph = Graph("itself")
    x = graph.input("x", (4, 16))
    graph.set_outputs([x, x])
    program, source = prepare_graph(engine, graph), aligned_array()
    want = source.copy()
    outs = run_blocking(engine.run(program, {"x": source}, [True, True]))
    source[...] = 5
    feeds = {"x": outs[0]}
    back, _ = run_blocking(engine.run(program, feeds, [False, True]))
    back[...] = 6
    read = run_blocking(engine.get(outs[0]))
    if read.flags.writeable:
        read[...] = 7
    for out in outs:
        np.testing.assert_array_equal(run_blocking(engine.get(out)), want)


def aligned_array() -> Any:
    """Return an array (4, 16) aligned to 64 bytes: JAX uses such memory without a
    copy.
    """
    raw = np.arange(80, dtype=np.float32)
    offset = (-raw.ctypes.data % 64) // 4
    return raw[offset : offset + 64].reshape(4, 16)


def test_part_shares_memory(engine: Any) -> None:
    """A part is some rows, in any shape; it outlives the last reference to the
    whole.
    """
    whole = run_blocking(engine.put(X))
    part = whole.part(3, (2, 3))
    flat = part.part(3, (3,))
    del whole
    gc.collect()
    np.testing.assert_array_equal(run_blocking(engine.get(part)), X[1:3])
    np.testing.assert_array_equal(run_blocking(engine.get(flat)), X[2])


def test_array_of_another_engine_is_refused(engine: Any) -> None:
    """An array of another engine is refused with both engines' names, and never
    moved.
    """
    other = (
        fake_webgpu_engine() if not isinstance(engine, WebGpuEngine) else CpuEngine()
    )
    foreign_array = run_blocking(other.put(X))
    program = prepare_with_ones(engine)
    assert not foreign_array.is_usable_by(engine)
    for verb in (
        lambda: engine.get(foreign_array),
        lambda: program.set_param("w", foreign_array),
        lambda: engine.run(program, {"x": foreign_array}, [True]),
    ):
        message = re.escape(f"to {engine.name}: the array is on {other.name}; ")
        with pytest.raises(GraphError, match=message):
            run_blocking(verb())


@pytest.mark.parametrize("kind", ["cpu", "torch", "fake"])
def test_engine_of_another_kernel_variant_shares_arrays(kind: str) -> None:
    """`with_variant` leaves the device as it is, so its arrays are used as they are."""
    engine: Any = ENGINES[kind]()
    other = engine.with_variant("")
    x, w = (run_blocking(engine.put(array)) for array in (X, ONES))
    program = prepare_graph(other, scaled_graph())
    run_blocking(program.set_param("w", w))
    (output,) = run_keeping(other, program, x)
    np.testing.assert_array_equal(run_blocking(engine.get(output)), X * 2 + 1)


def test_threads_share_device_arrays(engine: Any) -> None:
    """Threads share a device array, each with its own results."""
    program, device_array = prepare_with_ones(engine), run_blocking(engine.put(X))

    def work() -> None:
        (out,) = run_keeping(engine, program, device_array)
        np.testing.assert_array_equal(run_blocking(engine.get(out)), X * 2 + 1)

    run_concurrently([work] * 8)


# --- in the host's memory ---------------------------------------------------------


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0",
    reason="NumPy before 2.1 hands no array that may not be written to DLPack",
)
@pytest.mark.parametrize("kind", ["plain", "cpu"])
def test_host_memory_array_is_read_only(kind: str) -> None:
    """Reading it copies nothing and gives an array that refuses writes."""
    engine = ENGINES[kind]()
    device_array = run_blocking(engine.put(X))
    got = run_blocking(engine.get(device_array))
    assert np.may_share_memory(got, run_blocking(engine.get(device_array)))
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1
    shared = (
        np.from_dlpack(device_array.lend()) if kind == "cpu" else device_array.lend()
    )
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 1
    copy = device_array.lend(copy=True)
    copy[...] = 9
    np.testing.assert_array_equal(run_blocking(engine.get(device_array)), X)


def test_array_of_another_library_is_imported() -> None:
    """An array of another library is copied by from_dlpack, if the engine has one."""
    assert run_blocking(CpuEngine().take(X)) is None
    imported: list[object] = []

    class ImportingEngine(CpuEngine):
        def __init__(self) -> None:
            super().__init__()
            self._from_dlpack = self.import_array

        def import_array(self, array: Any) -> Any:
            imported.append(array)
            return np.from_dlpack(array)

    class OtherDeviceArray:
        """Array on another device of the same kind."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 1

    assert run_blocking(ImportingEngine().take(OtherDeviceArray())) is None
    foreign_array = X.copy()
    device_array = run_blocking(ImportingEngine().take(foreign_array))
    foreign_array[...] = 0
    assert device_array is not None
    assert (len(imported), device_array.shape, device_array.dtype) == (
        1,
        (4, 3),
        np.float32,
    )
    np.testing.assert_array_equal(
        run_blocking(device_array.engine.get(device_array)), X
    )


# --- on real drivers --------------------------------------------------------------


def running_average_graph() -> Graph:
    """Return a graph of the running average of x, and whether it is above one half."""
    graph = Graph("average")
    x, mean = graph.input("x", (5, 7)), graph.param("mean", (5, 7))
    updated = mean * 0.75 + x * 0.25
    graph.set_outputs([updated, updated > 0.5])
    return graph


@pytest.fixture(scope="module")
def native_engine(adapter: AdapterRequest) -> Iterator[WebGpuEngine]:
    with open_native_port(adapter) as port:
        yield WebGpuEngine(port)


@pytest.mark.requires_wgpu
def test_state_stays_on_device_for_many_runs(native_engine: WebGpuEngine) -> None:
    """A running average stays right over 200 runs, and no buffers pile up."""
    program = prepare_graph(native_engine, running_average_graph())
    want = np.zeros((5, 7), np.float32)
    run_blocking(program.set_param("mean", want))
    xs = np.random.default_rng(1).random((8, 5, 7)).astype(np.float32)
    inputs = [run_blocking(native_engine.put(x)) for x in xs]
    live_count = 0
    for step in range(200):
        mean, above = run_blocking(
            native_engine.run(program, {"x": inputs[step % 8]}, [True] * 2)
        )
        run_blocking(program.set_param("mean", mean))
        want = want * np.float32(0.75) + xs[step % 8] * np.float32(0.25)
        live_count = live_count or len(native_engine.port.live_handles)
    gc.collect()
    np.testing.assert_allclose(run_blocking(native_engine.get(mean)), want, rtol=1e-6)
    np.testing.assert_array_equal(
        run_blocking(native_engine.get(above)),
        run_blocking(native_engine.get(mean)) > 0.5,
    )
    assert len(native_engine.port.live_handles) <= live_count + 4
    run_blocking(program.close())


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 5), (257,), (2, 3, 4)])
def test_every_dtype_round_trips(
    native_engine: WebGpuEngine, shape: tuple[int, ...]
) -> None:
    """Float16 (two to a word) and bool (a word each) survive upload, kernel and
    readback.
    """
    assert len(native_engine.target.array_dtypes) >= 4
    for dtype in native_engine.target.array_dtypes:
        graph = Graph("round")
        x = graph.input("x", shape, dtype)
        graph.set_outputs([x, graph.eq(x, x)])
        program = prepare_graph(native_engine, graph)
        rng = np.random.default_rng(2)
        array = rng.integers(0, 2, shape).astype(dtype.numpy)
        feeds = {"x": run_blocking(native_engine.put(array))}
        same, alike = run_blocking(native_engine.run(program, feeds, [True, True]))
        np.testing.assert_array_equal(
            run_blocking(native_engine.get(same)), array, strict=True
        )
        np.testing.assert_array_equal(
            run_blocking(native_engine.get(alike)), np.ones(shape, bool)
        )
        run_blocking(program.close())
