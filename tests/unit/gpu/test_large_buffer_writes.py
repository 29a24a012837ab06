"""Large writes, in place and staged, on every adapter, and the buffers they keep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.core.errors import DeviceLost, GpuTimeout
from rlxweb.gpu import adapter_selection as choice
from rlxweb.gpu import buffer_mapping, readback, upload_staging, wgpu_port
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest, BufferCopy, BufferRange
from rlxweb.gpu.wgpu_port import MAPPED_WRITE_BYTES, WgpuPort
from tests.gpu_ports import open_native_port

STAGE_NBYTES = 2 << 20
LARGE_WRITE_NBYTES = STAGE_NBYTES + 3 * MAPPED_WRITE_BYTES // 2 + 4


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Make the chunks small, so that few bytes take several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload_staging, "MAX_STAGE_BYTES", STAGE_NBYTES)
        patch.setattr(readback, "_STAGE_BYTES", STAGE_NBYTES)
        patch.setattr(buffer_mapping, "_CHUNK_BYTES", STAGE_NBYTES // 4)
        yield


@pytest.fixture(scope="module", params=[True, False], ids=["in place", "staged"])
def port(adapter: AdapterRequest, request: pytest.FixtureRequest) -> Iterator[WgpuPort]:
    """Open an adapter written in place, where possible, or through staging buffers."""
    with open_native_port(adapter, in_place=request.param) as open_port:
        yield open_port
        assert open_port.live_handles == set()


def random_bytes(nbytes: int, seed: int = 1) -> np.ndarray:
    """Return random bytes, so that neighbours rarely agree."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def read_buffer(port: WgpuPort, handle: int, nbytes: int) -> np.ndarray:
    """Return the contents of a buffer."""
    return np.frombuffer(run_blocking(port.read(handle, 0, nbytes)), np.uint8)


def test_large_writes_are_read_back(port: WgpuPort) -> None:
    """More bytes than a staging buffer holds arrive at an offset, with an odd tail."""
    payload = random_bytes(LARGE_WRITE_NBYTES + 3)
    handle = port.create_buffer(payload.size + 8, "storage", is_host_written=True)
    port.write(handle, 4, memoryview(payload))
    got = read_buffer(port, handle, payload.size + 8)
    np.testing.assert_array_equal(got[4 : 4 + payload.size], payload)
    assert not got[:4].any()
    assert not got[4 + payload.size :].any()
    unaligned = run_blocking(port.read(handle, 7, payload.size - 5))
    np.testing.assert_array_equal(np.frombuffer(unaligned, np.uint8), payload[3:-2])
    port.destroy(handle)


def test_large_and_small_writes_keep_their_order(port: WgpuPort) -> None:
    """Writes over parts of earlier ones keep their order, with copies in between."""
    want = np.zeros(3 * MAPPED_WRITE_BYTES, np.uint8)
    target = port.create_buffer(want.size, "storage", is_host_written=True)
    copy = port.create_buffer(want.size, "storage")
    for index, (offset, size) in enumerate(
        [
            (0, 3 * MAPPED_WRITE_BYTES),
            (8, 64),
            (MAPPED_WRITE_BYTES, MAPPED_WRITE_BYTES),
            (4, 2 * MAPPED_WRITE_BYTES),
            (0, 16),
            (4, MAPPED_WRITE_BYTES),
        ]
    ):
        payload = random_bytes(size, index)
        want[offset : offset + size] = payload
        port.write(target, offset, memoryview(payload))
        if index % 3 == 2:
            before = want.copy()
            port.submit([BufferCopy(BufferRange(target, 0, want.size), copy)])
    np.testing.assert_array_equal(read_buffer(port, copy, want.size), before)
    np.testing.assert_array_equal(read_buffer(port, target, want.size), want)
    port.destroy(target)
    port.destroy(copy)


def test_staging_buffers_are_reused_and_freed(port: WgpuPort) -> None:
    """Staging buffers are bounded, and are freed with the last large buffer."""
    ring, stages = port._uploads._ring, port._reader._stages
    handles = [port.create_buffer(LARGE_WRITE_NBYTES, "storage") for _ in range(2)]
    ring_contents = []
    for seed in range(4):
        for handle in handles:
            port.write(handle, 0, memoryview(random_bytes(LARGE_WRITE_NBYTES, seed)))
            ring_contents.append([stage.native for stage in ring])
    assert ring_contents[-1] == ring_contents[1]
    assert len(ring) == 2
    read_buffer(port, handles[0], LARGE_WRITE_NBYTES)
    port.destroy(handles[0])
    assert any(stages)
    np.testing.assert_array_equal(
        read_buffer(port, handles[1], LARGE_WRITE_NBYTES),
        random_bytes(LARGE_WRITE_NBYTES, 3),
    )
    port.destroy(handles[1])
    assert not ring
    assert not any(stages)


@pytest.mark.parametrize("interrupted_step", ["copy", "wait", "submit"])
def test_an_interrupted_write_leaves_the_next_one_complete(
    port: WgpuPort, interrupted_step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write interrupted anywhere leaves the next one complete."""
    payload = random_bytes(LARGE_WRITE_NBYTES)
    handle = port.create_buffer(LARGE_WRITE_NBYTES, "storage", is_host_written=True)
    for _ in range(3):
        port.write(handle, 0, memoryview(payload[::-1].copy()))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    patch_targets = {
        "copy": (port._uploads._mapper, "copy"),
        "wait": (port._waits, "_wait_until_deadline"),
        "submit": (port._uploads, "_submit"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*patch_targets[interrupted_step], interrupt)
        if interrupted_step == "submit" and port.in_place:
            port.write(handle, 0, memoryview(payload))
        else:
            with pytest.raises(KeyboardInterrupt):
                port.write(handle, 0, memoryview(payload))
    for _ in range(3):
        port.write(handle, 0, memoryview(payload))
    np.testing.assert_array_equal(
        read_buffer(port, handle, LARGE_WRITE_NBYTES), payload
    )
    port.destroy(handle)


def test_copying_threads_end_before_the_next_call(
    adapter: AdapterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers are unmapped only after copying threads are done."""
    release, started = threading.Event(), threading.Event()
    original_run_tasks: Callable[..., None] = buffer_mapping.run_tasks

    def run_tasks_later(*args: object, **options: object) -> None:
        started.set()
        assert release.wait(20)
        original_run_tasks(*args, **options)

    def interrupt_wait(event: threading.Event, deadline_s: float) -> bool:
        if event.is_set():
            return True
        assert started.wait(20)
        raise KeyboardInterrupt

    payload = random_bytes(LARGE_WRITE_NBYTES)
    with open_native_port(adapter, in_place=False) as port:
        handle = port.create_buffer(LARGE_WRITE_NBYTES, "storage")
        with monkeypatch.context() as patch:
            patch.setattr(buffer_mapping, "run_tasks", run_tasks_later)
            patch.setattr("rlxweb.gpu.deadline_waits.wait_for_event", interrupt_wait)
            with pytest.raises(KeyboardInterrupt):
                port.write(handle, 0, memoryview(payload))
        (stage,) = port._uploads._ring
        assert stage.native.map_state == "mapped"
        release.set()
        port.write(handle, 0, memoryview(payload))
        assert port._uploads._ring[0] is not stage
        np.testing.assert_array_equal(
            read_buffer(port, handle, LARGE_WRITE_NBYTES), payload
        )


def test_a_write_to_an_unresponsive_device_times_out(
    adapter: AdapterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to an unresponsive device ends by the deadline, as a read does."""
    port = WgpuPort(in_place=False)
    run_blocking(port.open(adapter))
    handle = port.create_buffer(LARGE_WRITE_NBYTES, "storage")
    for _ in range(3):
        port.write(handle, 0, memoryview(random_bytes(LARGE_WRITE_NBYTES)))
    monkeypatch.setattr(
        "rlxweb.gpu.deadline_waits.wait_for_event", lambda event, deadline_s: False
    )
    with pytest.raises(GpuTimeout):
        port.write(handle, 0, memoryview(random_bytes(LARGE_WRITE_NBYTES)))
    with pytest.raises(DeviceLost):
        port.write(handle, 0, memoryview(random_bytes(4)))
    monkeypatch.undo()
    run_blocking(port.close())
    wgpu_port._hung_adapters().clear()


def test_a_device_in_host_memory_is_written_in_place(adapter: AdapterRequest) -> None:
    """A device in host memory is written in place if it can map (OpenGL cannot)."""
    can_map = adapter.backends != ("opengl",)
    for is_requested in (True, False):
        with open_native_port(adapter, in_place=is_requested) as port:
            assert (port.can_map_in_place, port.in_place) == (
                can_map,
                can_map and is_requested,
            )


def test_a_discrete_gpu_is_written_through_staging_buffers(
    adapter: AdapterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of a discrete GPU is not host memory, so staging buffers are used."""
    original_candidates = choice.check_adapters

    def discrete_candidates(*args: Any) -> Iterator[Any]:
        for facts, adapter, reason in original_candidates(*args):
            yield replace(facts, has_shared_memory=False), adapter, reason

    monkeypatch.setattr(choice, "check_adapters", discrete_candidates)
    with open_native_port(adapter) as port:
        assert (port.can_map_in_place, port.in_place) == (False, False)
