"""Work beside an event loop: the loop goes on, tasks can be given up, twenty share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.gpu.beside import MOST, beside
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.signal import engine
from rlxweb.stopping import Stopped, check_stopped, may_stop
from tests.threads import WAIT_S, in_a_loop

X = np.random.default_rng(1).standard_normal((3, 1000)).astype(np.float32)


def doubling() -> rlx.Graph:
    graph = rlx.Graph("doubling")
    graph.set_outputs([graph.input("x", X.shape) * 2.0])
    return graph


class Held:
    """Host work that ends only when the event loop has had its turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.stopped = threading.Event()
        self._power = engine.welch_power
        monkeypatch.setattr(engine, "welch_power", self)

    def __call__(self, *given: Any, **more: Any) -> Any:
        self.begun.set()
        assert self.go_on.wait(WAIT_S), "the event loop stood still"
        try:
            check_stopped()
        except Stopped:
            self.stopped.set()
            raise
        return self._power(*given, **more)

    async def until_begun(self) -> None:
        while not self.begun.is_set():
            await asyncio.sleep(0)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


CALLS: dict[str, tuple[Callable[[], Any], Callable[[], Coroutine[Any, Any, Any]]]] = {
    "welch": (
        lambda: rlx.welch(X, 256, device="cpu")[1],
        lambda: _second(rlx.welch_async(X, 256, device="cpu")),
    ),
    "welch_peaks": (
        lambda: rlx.welch_peaks(X, 256, device="cpu").power,
        lambda: _power(rlx.welch_peaks_async(X, 256, device="cpu")),
    ),
}


async def _second(pair: Coroutine[Any, Any, Any]) -> Any:
    return (await pair)[1]


async def _power(peaks: Coroutine[Any, Any, Any]) -> Any:
    return (await peaks).power


@pytest.mark.parametrize("call", CALLS)
def test_the_loop_goes_on_meanwhile(held: Held, call: str) -> None:
    """The loop goes on while work waits: else nobody would let the work go on."""
    blocking, awaited = CALLS[call]

    async def main() -> Any:
        task = asyncio.ensure_future(awaited())
        await held.until_begun()
        held.go_on.set()
        return await asyncio.wait_for(task, WAIT_S)

    found = in_a_loop(main())
    np.testing.assert_array_equal(found, blocking())


@pytest.mark.parametrize("call", CALLS)
def test_a_task_is_cancelled_at_once(held: Held, call: str) -> None:
    """A cancelled task stops at its next step; the engine serves the next caller."""
    blocking, awaited = CALLS[call]

    async def main() -> None:
        task = asyncio.ensure_future(awaited())
        await held.until_begun()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not held.stopped.is_set()
        held.go_on.set()

    in_a_loop(main())
    assert held.stopped.wait(WAIT_S)
    assert np.isfinite(blocking()).all()


def test_a_job_that_has_not_begun_never_does() -> None:
    """A task that is cancelled while others are at work never runs."""
    begun, go_on, ran = [], threading.Event(), []

    def long(k: int) -> int:
        begun.append(k)
        go_on.wait(WAIT_S)
        return k

    async def main() -> list[int]:
        tasks = [
            asyncio.ensure_future(beside(lambda k=k: long(k))) for k in range(MOST)
        ]
        while len(begun) < MOST:
            await asyncio.sleep(0)
        late = asyncio.ensure_future(beside(lambda: ran.append(1)))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        go_on.set()
        return await asyncio.gather(*tasks)

    assert in_a_loop(main()) == list(range(MOST))
    assert ran == []


def test_graphs_run_beside_a_loop() -> None:
    """Graphs are compiled, set and run beside a loop; errors come out of the await."""
    graph = rlx.Graph("weighed")
    graph.set_outputs([graph.input("x", (2,)) * graph.param("w", (2,))])

    async def main() -> Any:
        compiled = await rlx.Session("cpu").compile_async(graph)
        with pytest.raises(rlx.errors.InputError, match="'w' has no value"):
            await compiled.run_async({"x": np.ones(2, "f4")})
        await compiled.set_param_async("w", np.full(2, 3, "f4"))
        (found,) = await compiled.run_async({"x": np.ones(2, "f4")})
        return found.tolist()

    assert in_a_loop(main()) == [3, 3]


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_blocking_calls_work_where_a_loop_is_running(device: str) -> None:
    """Blocking calls work in a running loop, such as that of a notebook."""

    async def cell() -> list[Any]:
        compiled = rlx.Session(device).compile(doubling())
        where = None if device == "auto" else device
        assert rlx.welch_peaks(X, 256, device=where).count.shape == (3,)
        assert rlx.welch(X, 256, device=where)[1].shape == (3, 129)
        runner = rlx.GraphDevices(doubling(), rlx.DevicePolicy.only(["cpu"]))
        np.testing.assert_array_equal(runner.run_chain(inputs={"x": X})[1][0], X * 2)
        return compiled.run({"x": X})

    np.testing.assert_array_equal(in_a_loop(cell())[0], X * 2)


def test_without_a_loop_that_is_known_it_is_done_on_the_spot() -> None:
    """A call without a known loop runs on the spot, as other drivers want it."""
    here = threading.get_ident()
    assert drive(beside(threading.get_ident)) == here
    found = drive(rlx.welch_peaks_async(X, 256, device="cpu"))
    np.testing.assert_array_equal(found.bins, rlx.welch_peaks(X, 256).bins)


def test_long_host_work_has_steps() -> None:
    """Rows are transformed in blocks; graphs node by node."""
    steps = iter([False] * 3)
    rows = np.ones((200, 40_000), np.float32)
    with may_stop(lambda: next(steps, True)), pytest.raises(Stopped):
        rlx.welch(rows, device="cpu")
    compiled = rlx.Session("cpu", optimise=False).compile(doubling())
    with may_stop(lambda: True), pytest.raises(Stopped):
        compiled.run({"x": X})
    np.testing.assert_array_equal(compiled.run({"x": X})[0], X * 2)


@pytest.mark.requires_wgpu
def test_twenty_at_once_share_a_device(adapter: Want) -> None:
    """Nobody is told that it is busy; everybody gets their own answer."""
    (label,) = adapter.backends
    there = {"device": label, "adapter": adapter.name}
    compiled = rlx.Session(label, adapter=adapter.name).compile(doubling())

    async def main() -> tuple[list[Any], list[Any]]:
        peaks = [
            rlx.welch_peaks_async(X * np.float32(k), **there) for k in range(1, 21)
        ]
        runs = [compiled.run_async({"x": X * np.float32(k)}) for k in range(1, 21)]
        found = await asyncio.wait_for(asyncio.gather(*peaks, *runs), WAIT_S)
        return found[:20], found[20:]

    peaks, runs = in_a_loop(main())
    want = rlx.welch_peaks(X, **there)
    for k, (one, (out,)) in enumerate(zip(peaks, runs, strict=True), 1):
        np.testing.assert_array_equal(one.bins, want.bins)
        np.testing.assert_allclose(one.power, want.power * k * k, rtol=1e-5)
        np.testing.assert_array_equal(out, X * np.float32(k) * 2)
    compiled.close()
