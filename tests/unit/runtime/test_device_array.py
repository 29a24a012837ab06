"""Arrays that lie on a device, as a caller has them: put, runs that keep, hand over."""

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
from rlxweb.backends.pool import pool
from rlxweb.errors import (
    CannotLend,
    DTypeError,
    InputError,
    SessionClosed,
    ShapeError,
    UnknownDevice,
    Unsupported,
    UsageError,
)
from rlxweb.limits import shrunk
from rlxweb.signal.presets import from_preset
from rlxweb.signal.stream import WelchAverage
from tests.command_line import python
from tests.threads import at_once, in_a_loop

X = np.arange(12, dtype=np.float32).reshape(4, 3)
DEVICES = ["cpu", pytest.param("vulkan", marks=pytest.mark.requires_wgpu)]


def average() -> Graph:
    """A running average of x, and which of its values are above 1."""
    graph = Graph("average")
    x, mean = graph.input("x", (4, 3)), graph.param("mean", (4, 3))
    new = mean * 0.75 + x * 0.25
    graph.set_outputs([new, new > 1.0])
    return graph


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def compiled(device: str) -> Any:
    made = Session(device).compile(average())
    made.set_param("mean", np.zeros((4, 3), np.float32))
    return made


def test_an_array_is_put_and_read_back(device: str) -> None:
    """An array says what and where it is; what was given may change."""
    mine = X.copy()
    with rlx.put(mine, device) as x:
        mine[...] = 0
        assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes) == ((4, 3), "f4", 2, 12, 48)
        assert (x.device, x.closed) == (rlx.Device(device), False)
        assert repr(x) == f"DeviceArray([4, 3] f32 on {x.engine})"
        got = x.numpy()
        got[...] = 1
        np.testing.assert_array_equal(np.asarray(x), X)
        np.testing.assert_array_equal(np.array(x, np.float64), X.astype(float))
        moved = rlx.put(x, "cpu")
        np.testing.assert_array_equal(moved.numpy(), X)
    assert x.closed
    assert repr(x).endswith(", closed)")
    x.close()
    for use in (x.numpy, lambda: np.asarray(x), lambda: rlx.put(x, "cpu")):
        with pytest.raises(SessionClosed, match="the array was closed"):
            use()


def test_a_closed_array_holds_nothing(device: str) -> None:
    """A closed array's memory goes at once; its shape and size stay known."""
    x = rlx.put(X, device)
    memory = weakref.ref(x._resident)
    x.close()
    assert memory() is None
    assert (x.shape, x.nbytes, x.closed) == ((4, 3), 48, True)


def test_state_goes_from_run_to_run(compiled: Any, device: str) -> None:
    """State in the page's example is not read back until it is asked for."""
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


def test_some_outputs_stay(compiled: Any) -> None:
    """Outputs at the positions named stay; none do at none."""
    mean, above = compiled.run({"x": X}, keep=(0,))
    assert (type(mean), type(above)) == (DeviceArray, np.ndarray)
    mean, above = compiled.run({"x": compiled.put(X)}, keep=[1])
    assert (type(mean), type(above)) == (np.ndarray, DeviceArray)
    assert all(type(one) is np.ndarray for one in compiled.run({"x": X}, keep=()))
    for keep in (2, "0", (2,), (-1,), (True,), None, {"mean": True}):
        with pytest.raises(UsageError, match=r"positions of outputs, 0 to 1"):
            compiled.run({"x": X}, keep=keep)


def test_what_does_not_fit_is_refused(compiled: Any, device: str) -> None:
    """Type and shape are those of arrays of the host, checked alike."""
    with pytest.raises(ShapeError, match=r"run 'average', input 'x': the array is \[3"):
        compiled.run({"x": rlx.put(X.T, device)})
    with pytest.raises(DTypeError, match="the graph declares f32"):
        compiled.set_param("mean", rlx.put(X.astype(np.int32), device))
    with pytest.raises(DTypeError, match=r"keep|an array in the host's memory"):
        compiled.run_typed({"x": (rlx.put(X, device), "f32")})


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("strict", [False, True])
def test_what_lies_elsewhere_is_refused(strict: bool) -> None:
    """An array or param elsewhere is refused with both places, strict or not."""
    places = ["cpu", "vulkan", "gpu"]
    made = {p: Session(p, strict=strict).compile(average()) for p in places}
    arrays = {p: rlx.put(X, p) for p in places}
    for here, one in made.items():
        one.set_param("mean", arrays[here])
        for there, x in arrays.items():
            if here == there:
                one.run({"x": x}, strict=strict)
                continue
            said = f"lies on device '{there}'.*the run is on .*nothing is moved unasked"
            with pytest.raises(InputError, match=f"input 'x': the array {said}"):
                one.run({"x": x}, strict=strict)
            with pytest.raises(InputError, match=f"param 'mean': the array {said}"):
                one.set_param("mean", x)


def test_no_other_door_reads_it_back(device: str) -> None:
    """What wants an array of the host says how to get one."""
    x = rlx.put(X, device)
    graph = Graph("g")
    for door in (
        lambda: graph.constant(x),
        lambda: graph.input("x", (4, 3)) + x,
        lambda: rlx.welch([x, x]),
        lambda: WelchAverage(from_preset("scipy", None, nperseg=3), 4).feed(x),
    ):
        with pytest.raises(
            DTypeError, match=r"DeviceArray\(.*read it back: x.numpy\(\)"
        ):
            door()
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(Unsupported, match=r"pickle x.numpy\(\)"):
            use(x)


def test_numpy_reads_it_back_when_it_is_asked_to_and_else_not(device: str) -> None:
    """`np.asarray` does; an operator, a function, `==` and `if` say how instead."""
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
    for ask in (iter, float, bytes, memoryview, lambda x: x[0], lambda x: -x):
        with pytest.raises(TypeError):
            ask(x)
    with pytest.raises(AttributeError):
        x.label = "mine"
    assert (len(x), np.shape(x), np.ndim(x), np.size(x)) == (4, (4, 3), 2, 12)
    assert x != "x"
    assert {x: 1}[x] == 1
    assert x in (1.5, x)[1:]
    filled = np.empty((2, 4, 3), np.float32)
    filled[:] = x
    np.testing.assert_array_equal(filled, np.array([x, x]))


GIVEN = {
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
@pytest.mark.parametrize("how", GIVEN)
def test_arrays_may_lie_anyhow(how: str, device: str) -> None:
    """Arrays in any order, ours or another library's, are put as a dense copy."""
    import jax.numpy as jnp
    import torch

    given: Any = GIVEN[how]
    if how == "list":
        given = np.asarray(given, np.float32)
    want = np.array(given, given.dtype.newbyteorder("="), order="C")
    theirs = [given, jnp.asarray(want), torch.from_numpy(want)]
    if how == "turned":
        theirs[2] = torch.from_numpy(X.copy()).T
    for one in theirs:
        x = rlx.put(one, device)
        assert x.dtype == want.dtype
        got = x.numpy()
        np.testing.assert_array_equal(got, want, strict=True)
        assert got.flags.c_contiguous
        assert got.flags.writeable


def test_what_cannot_be_put_says_why(device: str) -> None:
    """No device, no array and a type the device has not are refused with a reason."""
    with pytest.raises(UnknownDevice, match="'auto' names no device"):
        rlx.put(X, "auto")
    with pytest.raises(UnknownDevice, match="unknown device 'vulcan'"):
        rlx.put(X, "vulcan")
    with pytest.raises(DTypeError, match=r"put an array on .*: None was given"):
        rlx.put(None, device)
    with pytest.raises(DTypeError):
        rlx.put(X.astype(complex), device)
    for words in ("Unknown device type meta", ""):

        class Elsewhere:
            def __dlpack_device__(self, words: str = words) -> tuple[int, int]:
                if words:
                    raise ValueError(words)
                return 99, 0

        with pytest.raises(DTypeError, match="Elsewhere was given"):
            rlx.put(Elsewhere(), device)
    if device == "vulkan":
        with pytest.raises(DTypeError, match=r"it is 0.1 at position \[0\]; .* no f64"):
            rlx.put(np.array([0.1]), device)


@pytest.mark.requires_torch
def test_what_lies_in_host_memory_is_shared_by_dlpack() -> None:
    """Host memory is shared by DLPack: a copy to write, the memory itself to read."""
    import torch

    x = rlx.put(X, "cpu")
    assert x.__dlpack_device__() == (1, 0)
    for taken in (torch.from_dlpack(x), np.from_dlpack(x)):
        np.testing.assert_array_equal(taken, X)
    torch.from_dlpack(x)[...] = 9
    np.testing.assert_array_equal(x.numpy(), X)
    shared = np.from_dlpack(x, copy=False)
    assert np.may_share_memory(shared, np.asarray(x))
    with pytest.raises(ValueError, match="read-only"):
        shared[...] = 1
    np.testing.assert_array_equal(rlx.put(torch.arange(3.0), "cpu").numpy(), [0, 1, 2])


def test_what_lies_in_host_memory_is_lent_to_numpy() -> None:
    """Host memory is lent to NumPy as a read-only view, unless a copy is asked for."""
    x = rlx.put(X, "cpu")
    assert np.may_share_memory(np.asarray(x), np.asarray(x))
    assert not np.asarray(x).flags.writeable
    assert np.array(x).flags.writeable
    assert np.array(x, copy=False) is not None
    with pytest.raises(ValueError, match="cannot be a NumPy array without a copy"):
        np.array(x, np.float64, copy=False)


@pytest.mark.requires_wgpu
def test_what_lies_on_a_gpu_is_lent_to_nobody() -> None:
    """Shader buffers are no library's memory; NumPy gets a copy or an error."""
    x = rlx.put(X, "vulkan")
    for use in (lambda: np.from_dlpack(x), x.__dlpack_device__):
        with pytest.raises(CannotLend, match=r"read it back: x.numpy\(\)") as found:
            use()
        assert isinstance(found.value, BufferError)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(x, copy=False)
    assert np.asarray(x).flags.writeable


def test_they_are_awaited_too(device: str) -> None:
    """Calls of put, run, set_param and reading are awaited beside an event loop."""

    async def work() -> Any:
        x = await rlx.put_async(X, device)
        compiled = await Session(device).compile_async(average())
        await compiled.set_param_async("mean", x)
        mean, _ = await compiled.run_async({"x": x}, keep=True)
        return await mean.numpy_async()

    np.testing.assert_array_equal(in_a_loop(work()), X)


def test_threads_share_arrays(compiled: Any, device: str) -> None:
    """Threads share arrays: each has its own run, and one's drop is no other's."""
    x = rlx.put(X, device)

    def work() -> None:
        for _ in range(5):
            mean, _ = compiled.run({"x": x}, keep=True)
            np.testing.assert_array_equal(mean.numpy(), X * 0.25)

    at_once([work] * 4)


@pytest.mark.requires_wgpu
def test_stricter_limits_are_the_same_device() -> None:
    """A session that pretends to have less takes what lies there."""
    less = Session("vulkan", limits=shrunk()).compile(average())
    less.set_param("mean", rlx.put(X, "vulkan"))
    (mean, _) = less.run({"x": less.put(X)}, keep=True)
    np.testing.assert_array_equal(mean.numpy(), X)
    backend = pool.backend("vulkan")
    assert backend.holds(mean._resident)


OUTLIVED = """
import gc, sys, threading
import numpy as np
import rlxweb as rlx
from rlxweb.backends.pool import pool

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
def test_it_may_outlive_its_device_and_the_interpreter(tmp_path: Path) -> None:
    """An array may be dropped in a thread after its device was closed, or never."""
    done = python("-W", "error", "-c", OUTLIVED, cwd=tmp_path)
    said = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert said[0].startswith("SessionClosed")
    assert said[1].startswith("InputError the array lies on device 'vulkan'")
    assert said[2:] == ["24.0 12.0"]
