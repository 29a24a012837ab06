"""Overlapped runs: runs in flight, buffers left behind, and bit-identical results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.core.errors import DeviceLost, GpuTimeout
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.pool import pool
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu import upload_staging, wgpu_port
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.signal import welch_engine
from tests.fake_gpu_port import FakePort, InjectedFailure
from tests.gpu_ports import (
    compute_scaled,
    open_fake_port,
    prepare_graph,
    scaled_graph,
    shader_source,
)

SHAPE = (4, 3)


def counted_feeds(count: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield inputs filled with 0, 1, 2, …"""
    for value in range(count):
        yield {"x": np.full(SHAPE, value, np.float32)}


def open_scaled(
    *fail: InjectedFailure, overlaps: bool = True
) -> tuple[FakePort, Any, Any]:
    """Return a port, an engine on it, and the program of X * 2 + 1."""
    port = open_fake_port(
        *fail, kernels={shader_source(scaled_graph(SHAPE)): compute_scaled}
    )
    engine = WebGpuEngine(port, overlaps_runs=overlaps)
    program = prepare_graph(engine, scaled_graph(SHAPE))
    run_blocking(program.set_param("w", np.ones(SHAPE, np.float32)))
    port.calls.clear()
    return port, engine, program


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("overlaps", [True, False])
def test_outputs_are_ordered_and_buffers_freed(count: int, overlaps: bool) -> None:
    """A batch of more than one run creates two sets of buffers, and frees them."""
    port, engine, program = open_scaled(overlaps=overlaps)
    before, outputs = set(port.live_handles), list[np.ndarray]()
    run_blocking(
        engine.run_each(
            program, counted_feeds(count), lambda outs: outputs.append(outs[0])
        )
    )
    assert [array[0, 0] for array in outputs] == [2 * n + 1 for n in range(count)]
    assert port.live_handles == before
    assert port.calls.count("buffer") == (2 if overlaps and count > 1 else 0)


def test_next_run_is_submitted_before_the_last_is_read() -> None:
    """Exactly one run is submitted ahead of the last read."""
    port, engine, program = open_scaled()
    run_blocking(engine.run_each(program, counted_feeds(4), lambda outs: None))
    verbs = [verb for verb in port.calls if verb in ("submit", "read")]
    step = ["submit", "read"]
    assert verbs == ["submit", *step * 3, "read"]


def test_runs_are_serialized_when_memory_runs_out() -> None:
    """Nothing is left of the set of buffers that did not fit."""
    port, engine, program = open_scaled()
    port._pending.append(InjectedFailure(len(port.calls) + 4, "out-of-memory"))
    before, outputs = set(port.live_handles), list[np.ndarray]()
    run_blocking(
        engine.run_each(program, counted_feeds(4), lambda outs: outputs.append(outs[0]))
    )
    assert not port._pending
    assert [array[0, 0] for array in outputs] == [1, 3, 5, 7]
    assert port.live_handles == before


@pytest.mark.parametrize("where", ["feeds", "take", "read", "lost"])
def test_interrupted_batch_leaves_nothing(where: str) -> None:
    """An interrupted batch leaves nothing: the next run is right, unless the device is
    lost.
    """
    port, engine, program = open_scaled()
    before = set(port.live_handles)

    def failing_feeds() -> Iterator[dict[str, np.ndarray]]:
        yield from counted_feeds(2)
        if where == "feeds":
            raise KeyboardInterrupt
        if where in ("read", "lost"):
            kind: Any = "lost" if where == "lost" else "timeout"
            port._pending.append(InjectedFailure("read", kind))
        yield from counted_feeds(2)

    def receive(outs: list[np.ndarray]) -> None:
        if where == "take":
            raise KeyboardInterrupt

    error_type = {"lost": DeviceLost, "read": GpuTimeout}.get(where, KeyboardInterrupt)
    with pytest.raises(error_type):
        run_blocking(engine.run_each(program, failing_feeds(), receive))
    assert port.live_handles == before
    if not port.lost:
        (got,) = run_blocking(engine.run(program, next(counted_feeds(1))))
        assert (got == 1).all()


@pytest.fixture(scope="module")
def engine(adapter: AdapterRequest) -> Any:
    """Return the pool's engine of the adapter, which calls that name the adapter
    use.
    """
    return pool.engine(adapter.backends[0], adapter.name)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("kind", ["peaks", "power", "digital"])
def test_jobs_of_many_batches_give_the_same_bits(
    adapter: AdapterRequest, engine: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of three rows and a rest give the same bits, overlapped and in place."""
    x: Any = np.random.default_rng(3).standard_normal((22, 300)).astype(np.float32)
    if kind == "digital":
        x = (x * 1000).astype(np.int16)
    monkeypatch.setattr(welch_engine, "MAX_BATCH_BYTES", 3 * 300 * 4)
    monkeypatch.setattr(wgpu_port, "MAPPED_WRITE_BYTES", 256)
    monkeypatch.setattr(upload_staging, "MAX_STAGE_BYTES", 1024)

    def compute() -> list[np.ndarray]:
        device_options: Any = {"device": adapter.backends[0], "adapter": adapter.name}
        if kind == "power":
            return [rlx.welch(x, nperseg=100, **device_options)[1]]
        peaks = rlx.welch_peaks(x, nperseg=100, k=5, **device_options)
        return [peaks.bins, peaks.power]

    monkeypatch.setattr(engine, "overlaps_runs", False)
    want, port = compute(), engine.port
    in_place_before = port.in_place
    monkeypatch.setattr(engine, "overlaps_runs", True)
    try:
        for in_place in {in_place_before, False}:
            port.in_place = in_place
            engine_caches(engine).programs.clear()
            for _ in range(2):
                for got_array, want_array in zip(compute(), want, strict=True):
                    np.testing.assert_array_equal(got_array, want_array)
    finally:
        port.in_place = in_place_before
        engine_caches(engine).programs.clear()


@pytest.mark.requires_wgpu
def test_ctrl_c_in_a_job_leaves_nothing(
    adapter: AdapterRequest, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted job leaves nothing, and the job after it is right."""
    x = np.random.default_rng(3).standard_normal((22, 300)).astype(np.float32)
    device_options: Any = {"device": adapter.backends[0], "adapter": adapter.name}
    monkeypatch.setattr(welch_engine, "MAX_BATCH_BYTES", 3 * 300 * 4)
    want = rlx.welch_peaks(x, nperseg=100, k=5, **device_options)
    before, calls = set(engine.port.live_handles), 0

    def interrupt_at_fourth() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(welch_engine, "raise_if_cancelled", interrupt_at_fourth)
        with pytest.raises(KeyboardInterrupt):
            rlx.welch_peaks(x, nperseg=100, k=5, **device_options)
    assert engine.port.live_handles == before
    got = rlx.welch_peaks(x, nperseg=100, k=5, **device_options)
    np.testing.assert_array_equal(got.power, want.power)
