"""Work in threads beside an event loop: the loop keeps running, tasks can be
cancelled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.thread_tasks import Cancelled, cancellation_scope, raise_if_cancelled
from rlxweb.gpu.coroutine_runner import MAX_THREADS, run_blocking, run_in_thread
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal import welch_engine
from tests.run_in_threads import WAIT_S, run_in_event_loop

X = np.random.default_rng(1).standard_normal((3, 1000)).astype(np.float32)


def doubling_graph() -> rlx.Graph:
    graph = rlx.Graph("doubling")
    graph.set_outputs([graph.input("x", X.shape) * 2.0])
    return graph


class BlockedWelch:
    """Host work that ends only after the event loop has run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.release = threading.Event(), threading.Event()
        self.stopped = threading.Event()
        self._power = welch_engine.welch_power
        monkeypatch.setattr(welch_engine, "welch_power", self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.started.set()
        assert self.release.wait(WAIT_S), "the event loop stood still"
        try:
            raise_if_cancelled()
        except Cancelled:
            self.stopped.set()
            raise
        return self._power(*args, **kwargs)

    async def wait_until_started(self) -> None:
        while not self.started.is_set():
            await asyncio.sleep(0)


@pytest.fixture
def blocked_welch(monkeypatch: pytest.MonkeyPatch) -> BlockedWelch:
    return BlockedWelch(monkeypatch)


CALLS: dict[str, tuple[Callable[[], Any], Callable[[], Coroutine[Any, Any, Any]]]] = {
    "welch": (
        lambda: rlx.welch(X, 256, device="cpu")[1],
        lambda: _second_result(rlx.welch_async(X, 256, device="cpu")),
    ),
    "welch_peaks": (
        lambda: rlx.welch_peaks(X, 256, device="cpu").power,
        lambda: _peak_power(rlx.welch_peaks_async(X, 256, device="cpu")),
    ),
}


async def _second_result(pair: Coroutine[Any, Any, Any]) -> Any:
    return (await pair)[1]


async def _peak_power(peaks: Coroutine[Any, Any, Any]) -> Any:
    return (await peaks).power


@pytest.mark.parametrize("call", CALLS)
def test_the_event_loop_runs_during_work(
    blocked_welch: BlockedWelch, call: str
) -> None:
    """The event loop runs during work; otherwise the work could not end."""
    blocking, awaited = CALLS[call]

    async def main() -> Any:
        task = asyncio.ensure_future(awaited())
        await blocked_welch.wait_until_started()
        blocked_welch.release.set()
        return await asyncio.wait_for(task, WAIT_S)

    result = run_in_event_loop(main())
    np.testing.assert_array_equal(result, blocking())


@pytest.mark.parametrize("call", CALLS)
def test_a_task_is_cancelled_at_once(blocked_welch: BlockedWelch, call: str) -> None:
    """A cancelled task stops at its next step; the engine serves the next caller."""
    blocking, awaited = CALLS[call]

    async def main() -> None:
        task = asyncio.ensure_future(awaited())
        await blocked_welch.wait_until_started()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not blocked_welch.stopped.is_set()
        blocked_welch.release.set()

    run_in_event_loop(main())
    assert blocked_welch.stopped.wait(WAIT_S)
    assert np.isfinite(blocking()).all()


def test_a_cancelled_pending_job_never_starts() -> None:
    """A task cancelled while all threads are busy never runs."""
    started, release, late_runs = [], threading.Event(), []

    def long_job(k: int) -> int:
        started.append(k)
        release.wait(WAIT_S)
        return k

    async def main() -> list[int]:
        tasks = [
            asyncio.ensure_future(run_in_thread(lambda k=k: long_job(k)))
            for k in range(MAX_THREADS)
        ]
        while len(started) < MAX_THREADS:
            await asyncio.sleep(0)
        late_task = asyncio.ensure_future(run_in_thread(lambda: late_runs.append(1)))
        await asyncio.sleep(0)
        late_task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late_task
        release.set()
        return await asyncio.gather(*tasks)

    assert run_in_event_loop(main()) == list(range(MAX_THREADS))
    assert late_runs == []


def test_graphs_run_in_threads_beside_an_event_loop() -> None:
    """Graphs are compiled, set and run beside an event loop; awaits raise their
    errors.
    """
    graph = rlx.Graph("weighed")
    graph.set_outputs([graph.input("x", (2,)) * graph.param("w", (2,))])

    async def main() -> Any:
        compiled = await rlx.Session("cpu").compile_async(graph)
        with pytest.raises(rlx.errors.InputError, match="'w' has no value"):
            await compiled.run_async({"x": np.ones(2, "f4")})
        await compiled.set_param_async("w", np.full(2, 3, "f4"))
        (output,) = await compiled.run_async({"x": np.ones(2, "f4")})
        return output.tolist()

    assert run_in_event_loop(main()) == [3, 3]


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_blocking_calls_work_in_a_running_event_loop(device: str) -> None:
    """Blocking calls work in a running loop, such as that of a notebook."""

    async def notebook_cell() -> list[Any]:
        compiled = rlx.Session(device).compile(doubling_graph())
        device_name = None if device == "auto" else device
        assert rlx.welch_peaks(X, 256, device=device_name).count.shape == (3,)
        assert rlx.welch(X, 256, device=device_name)[1].shape == (3, 129)
        runner = rlx.GraphDevices(doubling_graph(), rlx.DevicePolicy.only(["cpu"]))
        np.testing.assert_array_equal(runner.run_chain(inputs={"x": X})[1][0], X * 2)
        return compiled.run({"x": X})

    np.testing.assert_array_equal(run_in_event_loop(notebook_cell())[0], X * 2)


def test_work_runs_inline_without_a_known_event_loop() -> None:
    """Work runs in the calling thread if no known event loop is running."""
    thread_id = threading.get_ident()
    assert run_blocking(run_in_thread(threading.get_ident)) == thread_id
    peaks = run_blocking(rlx.welch_peaks_async(X, 256, device="cpu"))
    np.testing.assert_array_equal(peaks.bins, rlx.welch_peaks(X, 256).bins)


def test_long_host_work_can_be_cancelled_between_steps() -> None:
    """Rows are transformed in blocks, and graphs run node by node."""
    steps = iter([False] * 3)
    rows = np.ones((200, 40_000), np.float32)
    with cancellation_scope(lambda: next(steps, True)), pytest.raises(Cancelled):
        rlx.welch(rows, device="cpu")
    compiled = rlx.Session("cpu", optimise=False).compile(doubling_graph())
    with cancellation_scope(lambda: True), pytest.raises(Cancelled):
        compiled.run({"x": X})
    np.testing.assert_array_equal(compiled.run({"x": X})[0], X * 2)


@pytest.mark.requires_wgpu
def test_twenty_at_once_share_a_device(adapter: AdapterRequest) -> None:
    """Twenty concurrent calls share a device, and each gets its own result."""
    (label,) = adapter.backends
    placement = {"device": label, "adapter": adapter.name}
    compiled = rlx.Session(label, adapter=adapter.name).compile(doubling_graph())

    async def main() -> tuple[list[Any], list[Any]]:
        peaks = [
            rlx.welch_peaks_async(X * np.float32(k), **placement) for k in range(1, 21)
        ]
        runs = [compiled.run_async({"x": X * np.float32(k)}) for k in range(1, 21)]
        results = await asyncio.wait_for(asyncio.gather(*peaks, *runs), WAIT_S)
        return results[:20], results[20:]

    peaks, runs = run_in_event_loop(main())
    want = rlx.welch_peaks(X, **placement)
    for k, (result, (out,)) in enumerate(zip(peaks, runs, strict=True), 1):
        np.testing.assert_array_equal(result.bins, want.bins)
        np.testing.assert_allclose(result.power, want.power * k * k, rtol=1e-5)
        np.testing.assert_array_equal(out, X * np.float32(k) * 2)
    compiled.close()
