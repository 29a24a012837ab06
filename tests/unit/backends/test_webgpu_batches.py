"""Runs that overlap: what is on its way, what is left of it, and the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.pool import pool
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.errors import DeviceLost, GpuTimeout
from rlxweb.gpu import native, staging
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.signal import engine
from tests.fake_port import Failure, FakePort
from tests.ports import compute, fake, prepared, scaled, source_of

SHAPE = (4, 3)


def feeds(count: int) -> Iterator[dict[str, np.ndarray]]:
    """0, 1, 2, … in every cell."""
    for one in range(count):
        yield {"x": np.full(SHAPE, one, np.float32)}


def opened(*fail: Failure, overlaps: bool = True) -> tuple[FakePort, Any, Any]:
    """A port, a backend on it, and X * 2 + 1 on that."""
    port = fake(*fail, kernels={source_of(scaled(SHAPE)): compute})
    backend = WebGpuBackend(port, overlaps=overlaps)
    program = prepared(backend, scaled(SHAPE))
    drive(backend.set_param(program, "w", np.ones(SHAPE, np.float32)))
    port.calls.clear()
    return port, backend, program


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("overlaps", [True, False])
def test_outputs_come_in_order_and_buffers_go(count: int, overlaps: bool) -> None:
    """A batch makes two sets of buffers for more than one run, and frees them."""
    port, backend, program = opened(overlaps=overlaps)
    before, found = set(port.live), list[np.ndarray]()
    drive(backend.run_each(program, feeds(count), lambda outs: found.append(outs[0])))
    assert [one[0, 0] for one in found] == [2 * n + 1 for n in range(count)]
    assert port.live == before
    assert port.calls.count("buffer") == (2 if overlaps and count > 1 else 0)


def test_the_next_is_handed_over_before_the_last_is_read() -> None:
    """One run is handed over ahead of the last read, and no more than one."""
    port, backend, program = opened()
    drive(backend.run_each(program, feeds(4), lambda outs: None))
    verbs = [verb for verb in port.calls if verb in ("submit", "read")]
    step = ["submit", "read"]
    assert verbs == ["submit", *step * 3, "read"]


def test_where_memory_ends_runs_take_turns() -> None:
    """Nothing is left of the set that had no room."""
    port, backend, program = opened()
    port._pending.append(Failure(len(port.calls) + 4, "out-of-memory"))
    before, found = set(port.live), list[np.ndarray]()
    drive(backend.run_each(program, feeds(4), lambda outs: found.append(outs[0])))
    assert not port._pending
    assert [one[0, 0] for one in found] == [1, 3, 5, 7]
    assert port.live == before


@pytest.mark.parametrize("where", ["feeds", "take", "read", "lost"])
def test_what_breaks_off_leaves_nothing(where: str) -> None:
    """A broken run leaves nothing: the next one is right, unless the device is lost."""
    port, backend, program = opened()
    before = set(port.live)

    def broken() -> Iterator[dict[str, np.ndarray]]:
        yield from feeds(2)
        if where == "feeds":
            raise KeyboardInterrupt
        if where in ("read", "lost"):
            kind: Any = "lost" if where == "lost" else "timeout"
            port._pending.append(Failure("read", kind))
        yield from feeds(2)

    def take(outs: list[np.ndarray]) -> None:
        if where == "take":
            raise KeyboardInterrupt

    stops = {"lost": DeviceLost, "read": GpuTimeout}.get(where, KeyboardInterrupt)
    with pytest.raises(stops):
        drive(backend.run_each(program, broken(), take))
    assert port.live == before
    if not port.lost:
        (got,) = drive(backend.run(program, next(feeds(1))))
        assert (got == 1).all()


@pytest.fixture(scope="module")
def backend(adapter: Want) -> Any:
    """What calls that name the adapter compute with."""
    return pool.backend(adapter.backends[0], adapter.name)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("kind", ["peaks", "power", "digital"])
def test_jobs_of_many_batches_give_the_same_bits(
    adapter: Want, backend: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of three rows and a rest give the same bits, overlapping and in place."""
    x: Any = np.random.default_rng(3).standard_normal((22, 300)).astype(np.float32)
    if kind == "digital":
        x = (x * 1000).astype(np.int16)
    monkeypatch.setattr(engine, "BATCH_BYTES", 3 * 300 * 4)
    monkeypatch.setattr(native, "LARGE", 256)
    monkeypatch.setattr(staging, "STAGE_BYTES", 1024)

    def ask() -> list[np.ndarray]:
        at: Any = {"device": adapter.backends[0], "adapter": adapter.name}
        if kind == "power":
            return [rlx.welch(x, nperseg=100, **at)[1]]
        found = rlx.welch_peaks(x, nperseg=100, k=5, **at)
        return [found.bins, found.power]

    monkeypatch.setattr(backend, "overlaps", False)
    want, port = ask(), backend.port
    own = port.in_place
    monkeypatch.setattr(backend, "overlaps", True)
    try:
        for in_place in {own, False}:
            port.in_place = in_place
            backend.kept.clear()
            for _ in range(2):
                for one, other in zip(ask(), want, strict=True):
                    np.testing.assert_array_equal(one, other)
    finally:
        port.in_place = own
        backend.kept.clear()


@pytest.mark.requires_wgpu
def test_ctrl_c_in_a_job_leaves_nothing(
    adapter: Want, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted job leaves nothing, and the job after it is right."""
    x = np.random.default_rng(3).standard_normal((22, 300)).astype(np.float32)
    at: Any = {"device": adapter.backends[0], "adapter": adapter.name}
    monkeypatch.setattr(engine, "BATCH_BYTES", 3 * 300 * 4)
    want = rlx.welch_peaks(x, nperseg=100, k=5, **at)
    before, calls = set(backend.port.live), 0

    def stopped() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "check_stopped", stopped)
        with pytest.raises(KeyboardInterrupt):
            rlx.welch_peaks(x, nperseg=100, k=5, **at)
    assert backend.port.live == before
    found = rlx.welch_peaks(x, nperseg=100, k=5, **at)
    np.testing.assert_array_equal(found.power, want.power)
