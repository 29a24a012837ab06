"""Device arrays: upload, runs that keep outputs on the device, DLPack and lifetime."""

from __future__ import annotations

import copy
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb import DeviceArray, Graph, Session
from rlxweb.core.errors import (
    CannotLend,
    DTypeError,
    InputError,
    SessionClosed,
    ShapeError,
    UnknownDevice,
    Unsupported,
    UsageError,
)
from rlxweb.core.limits import tiny_limits
from rlxweb.engines.pool import pool
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_blockwise_average import WelchAverage
from tests.cli_runners import run_python
from tests.run_in_threads import run_concurrently, run_in_event_loop

X = np.arange(12, dtype=np.float32).reshape(4, 3)
DEVICES = ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]


def average_graph() -> Graph:
    """Build a running average of x and a mask of its values above 1."""
    graph = Graph("average")
    x, mean = graph.input("x", (4, 3)), graph.param("mean", (4, 3))
    new_mean = mean * 0.75 + x * 0.25
    graph.set_outputs([new_mean, new_mean > 1.0])
    return graph


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def compiled(device: str) -> Any:
    compiled_graph = Session(device).compile(average_graph())
    compiled_graph.set_param("mean", np.zeros((4, 3), np.float32))
    return compiled_graph


def test_put_and_read_back(device: str) -> None:
    """An array reports its shape, dtype and device; the source array may change
    afterwards.
    """
    source = X.copy()
    with rlx.put(source, device) as x:
        source[...] = 0
        assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes) == ((4, 3), "f4", 2, 12, 48)
        assert (x.device, x.closed) == (rlx.Device(device), False)
        assert repr(x) == f"DeviceArray([4, 3] f32 on {x.engine})"
        got = x.numpy()
        got[...] = 1
        np.testing.assert_array_equal(np.asarray(x), X)
        np.testing.assert_array_equal(np.array(x, np.float64), X.astype(float))
        cpu_copy = rlx.put(x, "cpu")
        np.testing.assert_array_equal(cpu_copy.numpy(), X)
    assert x.closed
    assert repr(x).endswith(", closed)")
    x.close()
    for use in (x.numpy, lambda: np.asarray(x), lambda: rlx.put(x, "cpu")):
        with pytest.raises(SessionClosed, match="the array was closed"):
            use()


def test_closed_array_frees_memory(device: str) -> None:
    """A closed array frees its memory at once; its shape and size stay known."""
    x = rlx.put(X, device)
    memory = weakref.ref(x._buffer)
    x.close()
    assert memory() is None
    assert (x.shape, x.nbytes, x.closed) == ((4, 3), 48, True)


def test_state_passes_between_runs(compiled: Any, device: str) -> None:
    """State stays on the device between runs and is read back on request only."""
    x, want = rlx.put(X, device), np.zeros((4, 3), np.float32)
    for _ in range(20):
        mean, above = compiled.run({"x": x}, keep=True)
        compiled.set_param("mean", mean)
        want = want * np.float32(0.75) + X * np.float32(0.25)
    np.testing.assert_allclose(mean.numpy(), want, rtol=1e-6)
    np.testing.assert_array_equal(above.numpy(), want > 1)
    (host, _) = compiled.run({"x": x})
    assert type(host) is np.ndarray
    np.testing.assert_allclose(mean.numpy(), want, rtol=1e-6)


def test_keep_selects_outputs(compiled: Any) -> None:
    """Outputs at the selected positions stay on the device; an empty selection keeps
    none.
    """
    mean, above = compiled.run({"x": X}, keep=(0,))
    assert (type(mean), type(above)) == (DeviceArray, np.ndarray)
    mean, above = compiled.run({"x": compiled.put(X)}, keep=[1])
    assert (type(mean), type(above)) == (np.ndarray, DeviceArray)
    assert all(type(output) is np.ndarray for output in compiled.run({"x": X}, keep=()))
    for keep in (2, "0", (2,), (-1,), (True,), None, {"mean": True}):
        with pytest.raises(UsageError, match=r"output positions, each 0 to 1"):
            compiled.run({"x": X}, keep=keep)


def test_wrong_shape_or_dtype_is_rejected(compiled: Any, device: str) -> None:
    """Device arrays are checked for dtype and shape like host arrays."""
    with pytest.raises(
        ShapeError, match=r"run 'average', input 'x': the array has shape \[3"
    ):
        compiled.run({"x": rlx.put(X.T, device)})
    with pytest.raises(DTypeError, match="the graph declares dtype f32"):
        compiled.set_param("mean", rlx.put(X.astype(np.int32), device))
    with pytest.raises(DTypeError, match=r"keep|an array in host memory"):
        compiled.run_typed({"x": (rlx.put(X, device), "f32")})


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("strict", [False, True])
def test_array_on_another_device_is_rejected(strict: bool) -> None:
    """An input or param on another device is refused with both places, strict or
    not.
    """
    places = ["cpu", "vulkan", "gpu"]
    graphs = {
        place: Session(place, strict=strict).compile(average_graph())
        for place in places
    }
    arrays = {place: rlx.put(X, place) for place in places}
    for graph_place, compiled_graph in graphs.items():
        compiled_graph.set_param("mean", arrays[graph_place])
        for array_place, x in arrays.items():
            if graph_place == array_place:
                compiled_graph.run({"x": x}, strict=strict)
                continue
            message = f"is on device '{array_place}'.*the graph runs on .*pass x.numpy"
            with pytest.raises(InputError, match=f"input 'x': the array {message}"):
                compiled_graph.run({"x": x}, strict=strict)
            with pytest.raises(InputError, match=f"param 'mean': the array {message}"):
                compiled_graph.set_param("mean", x)


def test_host_only_calls_reject_device_arrays(device: str) -> None:
    """Calls that need a host array say how to read it back."""
    x = rlx.put(X, device)
    graph = Graph("g")
    for call in (
        lambda: graph.constant(x),
        lambda: graph.input("x", (4, 3)) + x,
        lambda: rlx.welch([x, x]),
        lambda: WelchAverage(spec_from_preset("scipy", None, nperseg=3), 4).feed(x),
    ):
        with pytest.raises(
            DTypeError, match=r"DeviceArray\(.*read it back: x.numpy\(\)"
        ):
            call()
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(Unsupported, match=r"pickle x.numpy\(\)"):
            use(x)


def test_numpy_reads_back_on_request_only(device: str) -> None:
    """Only `np.asarray` reads back; operators, functions, `==` and `if` raise with
    advice.
    """
    x: Any = rlx.put(X, device)
    for use in (
        lambda: X + x,
        lambda: x @ X,
        lambda: np.sin(x),
        lambda: np.add.reduce(x),
        lambda: np.mean(x),
        lambda: np.concatenate([X, x]),
        lambda: np.zeros_like(x),
        lambda: np.size(x, 0),
        lambda: x == X,
        lambda: X == x,
        lambda: x != x,
        lambda: x == 1,
        lambda: bool(x),
        lambda: len(rlx.put(np.float32(1), device)),
        lambda: rlx.put([X, x], device),
    ):
        with pytest.raises(DTypeError, match=r"read it back: x.numpy\(\)"):
            use()
    for call in (iter, float, bytes, memoryview, lambda x: x[0], lambda x: -x):
        with pytest.raises(TypeError):
            call(x)
    with pytest.raises(AttributeError):
        x.label = "mine"
    assert (len(x), np.shape(x), np.ndim(x), np.size(x)) == (4, (4, 3), 2, 12)
    assert x != "x"
    assert {x: 1}[x] == 1
    assert x in (1.5, x)[1:]
    filled = np.empty((2, 4, 3), np.float32)
    filled[:] = x
    np.testing.assert_array_equal(filled, np.array([x, x]))


SOURCE_ARRAYS = {
    "turned": X.T,
    "reversed": X[::-1, ::-1],
    "gaps": np.arange(48, dtype=np.float32).reshape(4, 12)[:, ::5],
    "spread": np.broadcast_to(np.float32(3), (2, 3)),
    "fixed": np.frombuffer(X.tobytes(), np.float32),
    "empty": np.zeros((3, 0, 2), np.float32),
    "a number": np.array(2.5, np.float32),
    "truths": X > 4,
    "halves": X.astype(np.float16)[:, :1],
    "other end": X.astype(">f4"),
    "other end, whole": X.astype(">i4")[::2],
    "list": [[1.5, 2.5]],
}


@pytest.mark.requires_jax
@pytest.mark.requires_torch
@pytest.mark.parametrize("layout", SOURCE_ARRAYS)
def test_put_accepts_any_memory_layout(layout: str, device: str) -> None:
    """NumPy, JAX and torch arrays of any memory layout are put as dense copies."""
    import jax.numpy as jnp
    import torch

    source: Any = SOURCE_ARRAYS[layout]
    if layout == "list":
        source = np.asarray(source, np.float32)
    want = np.array(source, source.dtype.newbyteorder("="), order="C")
    sources = [source, jnp.asarray(want), torch.from_numpy(want)]
    if layout == "turned":
        sources[2] = torch.from_numpy(X.copy()).T
    for array in sources:
        x = rlx.put(array, device)
        assert x.dtype == want.dtype
        got = x.numpy()
        np.testing.assert_array_equal(got, want, strict=True)
        assert got.flags.c_contiguous
        assert got.flags.writeable


def test_put_errors_explain_the_reason(device: str) -> None:
    """Unknown devices, non-arrays and unsupported dtypes are refused with a reason."""
    with pytest.raises(UnknownDevice, match="'auto' is not a specific device"):
        rlx.put(X, "auto")
    with pytest.raises(UnknownDevice, match="unknown device 'vulcan'"):
        rlx.put(X, "vulcan")
    with pytest.raises(DTypeError, match=r"put an array on .*: got None"):
        rlx.put(None, device)
    with pytest.raises(DTypeError):
        rlx.put(X.astype(complex), device)
    for message in ("Unknown device type meta", ""):

        class Elsewhere:
            def __dlpack_device__(self, message: str = message) -> tuple[int, int]:
                if message:
                    raise ValueError(message)
                return 99, 0

        with pytest.raises(DTypeError, match=r"got a .*Elsewhere"):
            rlx.put(Elsewhere(), device)
    if device == "vulkan":
        with pytest.raises(
            DTypeError, match=r"value is 0.1 at position \[0\]; .* no f64"
        ):
            rlx.put(np.array([0.1]), device)


@pytest.mark.requires_torch
def test_host_memory_is_shared_by_dlpack() -> None:
    """Host memory is shared by DLPack: a copy to write, the memory itself to read."""
    import torch

    x = rlx.put(X, "cpu")
    assert x.__dlpack_device__() == (1, 0)
    for imported in (torch.from_dlpack(x), np.from_dlpack(x)):
        np.testing.assert_array_equal(imported, X)
    torch.from_dlpack(x)[...] = 9
    np.testing.assert_array_equal(x.numpy(), X)
    shared = np.from_dlpack(x, copy=False)
    assert np.may_share_memory(shared, np.asarray(x))
    with pytest.raises(ValueError, match="read-only"):
        shared[...] = 1
    np.testing.assert_array_equal(rlx.put(torch.arange(3.0), "cpu").numpy(), [0, 1, 2])


def test_host_memory_is_lent_to_numpy() -> None:
    """Host memory is lent to NumPy as a read-only view, unless a copy is asked for."""
    x = rlx.put(X, "cpu")
    assert np.may_share_memory(np.asarray(x), np.asarray(x))
    assert not np.asarray(x).flags.writeable
    assert np.array(x).flags.writeable
    assert np.array(x, copy=False) is not None
    with pytest.raises(
        ValueError, match="cannot be converted to a NumPy array without a copy"
    ):
        np.array(x, np.float64, copy=False)


@pytest.mark.requires_wgpu
def test_gpu_memory_is_never_lent() -> None:
    """GPU buffers cannot be shared with other libraries; NumPy gets a copy or an
    error.
    """
    x = rlx.put(X, "vulkan")
    for use in (lambda: np.from_dlpack(x), x.__dlpack_device__):
        with pytest.raises(CannotLend, match=r"read it back: x.numpy\(\)") as caught:
            use()
        assert isinstance(caught.value, BufferError)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(x, copy=False)
    assert np.asarray(x).flags.writeable


def test_async_calls(device: str) -> None:
    """The asynchronous put, run, set_param and read work in an event loop."""

    async def work() -> Any:
        x = await rlx.put_async(X, device)
        compiled = await Session(device).compile_async(average_graph())
        await compiled.set_param_async("mean", x)
        mean, _ = await compiled.run_async({"x": x}, keep=True)
        return await mean.numpy_async()

    np.testing.assert_array_equal(run_in_event_loop(work()), X)


def test_threads_share_device_arrays(compiled: Any, device: str) -> None:
    """Threads share a device array; dropping one thread's outputs does not affect the
    others.
    """
    x = rlx.put(X, device)

    def work() -> None:
        for _ in range(5):
            mean, _ = compiled.run({"x": x}, keep=True)
            np.testing.assert_array_equal(mean.numpy(), X * 0.25)

    run_concurrently([work] * 4)


@pytest.mark.requires_wgpu
def test_stricter_limits_use_the_same_device() -> None:
    """A session with reduced limits accepts arrays of the same device."""
    compiled_graph = Session("vulkan", limits=tiny_limits()).compile(average_graph())
    compiled_graph.set_param("mean", rlx.put(X, "vulkan"))
    (mean, _) = compiled_graph.run({"x": compiled_graph.put(X)}, keep=True)
    np.testing.assert_array_equal(mean.numpy(), X)
    engine = pool.engine("vulkan")
    assert mean._buffer.is_usable_by(engine)


OUTLIVING_ARRAYS_SCRIPT = """
import gc, sys, threading
import numpy as np
import rlxweb as rlx
from rlxweb.engines.pool import pool

X = np.ones((4, 3), np.float32)
graph = rlx.Graph("twice")
graph.set_outputs([graph.input("x", (4, 3)) * 2.0])
arrays = [rlx.put(X, "vulkan") for _ in range(4)]
near = rlx.put(X, "cpu")
compiled = rlx.Session("vulkan").compile(graph)
arrays += compiled.run({"x": arrays[0]}, keep=True) + compiled.run({"x": X}, keep=True)
pool.close_all()

def drop():
    arrays.pop()
    arrays.pop().close()
    gc.collect()

one = threading.Thread(target=drop)
one.start()
one.join()
again = rlx.Session("vulkan").compile(graph)
for use in (arrays[0].numpy, lambda: again.run({"x": arrays[0]})):
    try:
        use()
    except rlx.RlxError as error:
        print(type(error).__name__, error.problem)
print(again.run({"x": again.put(X)})[0].sum(), near.numpy().sum())
sys.left = arrays, near, again, compiled
"""


@pytest.mark.requires_lavapipe
def test_array_may_outlive_device_and_interpreter(tmp_path: Path) -> None:
    """An array may be dropped in a thread after its device was closed, or never."""
    result = run_python("-W", "error", "-c", OUTLIVING_ARRAYS_SCRIPT, cwd=tmp_path)
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[0].startswith("SessionClosed")
    assert lines[1].startswith("InputError the array is on device 'vulkan'")
    assert lines[2:] == ["24.0 12.0"]
