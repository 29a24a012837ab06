"""Large writes: in place and staged on every adapter, and the buffers they keep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.errors import DeviceLost, GpuTimeout
from rlxweb.gpu import adapters as choice
from rlxweb.gpu import mapping, readback, staging
from rlxweb.gpu import native as native_port
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import LARGE, NativePort
from rlxweb.gpu.port import Copy, Range, Want
from tests.ports import native

STAGE = 2 << 20
MANY = STAGE + 3 * LARGE // 2 + 4


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Make the pieces small, so that few bytes take several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "STAGE_BYTES", STAGE)
        patch.setattr(readback, "_STAGE_BYTES", STAGE)
        patch.setattr(mapping, "_PIECE", STAGE // 4)
        yield


@pytest.fixture(scope="module", params=[True, False], ids=["in place", "staged"])
def port(adapter: Want, request: pytest.FixtureRequest) -> Iterator[NativePort]:
    """An adapter written to in place, where that can be, or through staging buffers."""
    with native(adapter, in_place=request.param) as made:
        yield made
        assert made.live == set()


def noise(nbytes: int, seed: int = 1) -> np.ndarray:
    """Bytes of which no two neighbours are likely the same."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def there(port: NativePort, handle: int, nbytes: int) -> np.ndarray:
    """What lies in a buffer."""
    return np.frombuffer(drive(port.read(handle, 0, nbytes)), np.uint8)


def test_many_bytes_arrive_and_come_back(port: NativePort) -> None:
    """Bytes beyond a staging buffer arrive at an offset, with an odd tail."""
    sent = noise(MANY + 3)
    handle = port.buffer(sent.size + 8, "storage", is_fed=True)
    port.write(handle, 4, memoryview(sent))
    got = there(port, handle, sent.size + 8)
    np.testing.assert_array_equal(got[4 : 4 + sent.size], sent)
    assert not got[:4].any()
    assert not got[4 + sent.size :].any()
    odd = drive(port.read(handle, 7, sent.size - 5))
    np.testing.assert_array_equal(np.frombuffer(odd, np.uint8), sent[3:-2])
    port.destroy(handle)


def test_writes_large_and_small_keep_their_order(port: NativePort) -> None:
    """Writes over parts of earlier ones keep their order, with copies in between."""
    want = np.zeros(3 * LARGE, np.uint8)
    fed = port.buffer(want.size, "storage", is_fed=True)
    copy = port.buffer(want.size, "storage")
    for turn, (at, size) in enumerate(
        [(0, 3 * LARGE), (8, 64), (LARGE, LARGE), (4, 2 * LARGE), (0, 16), (4, LARGE)]
    ):
        part = noise(size, turn)
        want[at : at + size] = part
        port.write(fed, at, memoryview(part))
        if turn % 3 == 2:
            before = want.copy()
            port.submit([Copy(Range(fed, 0, want.size), copy)])
    np.testing.assert_array_equal(there(port, copy, want.size), before)
    np.testing.assert_array_equal(there(port, fed, want.size), want)
    port.destroy(fed)
    port.destroy(copy)


def test_staging_buffers_are_used_again_and_freed(port: NativePort) -> None:
    """Staging buffers are bounded, and go with the last large buffer."""
    ring, stages = port._uploads._ring, port._reader._stages
    handles = [port.buffer(MANY, "storage") for _ in range(2)]
    used = []
    for turn in range(4):
        for handle in handles:
            port.write(handle, 0, memoryview(noise(MANY, turn)))
            used.append([stage.native for stage in ring])
    assert used[-1] == used[1]
    assert len(ring) == 2
    there(port, handles[0], MANY)
    port.destroy(handles[0])
    assert any(stages)
    np.testing.assert_array_equal(there(port, handles[1], MANY), noise(MANY, 3))
    port.destroy(handles[1])
    assert not ring
    assert not any(stages)


@pytest.mark.parametrize("breaks", ["copy", "wait", "submit"])
def test_ctrl_c_leaves_nothing_half_done(
    port: NativePort, breaks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that is interrupted anywhere leaves the next one whole."""
    sent = noise(MANY)
    handle = port.buffer(MANY, "storage", is_fed=True)
    for _ in range(3):
        port.write(handle, 0, memoryview(sent[::-1].copy()))

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    of = {
        "copy": (port._uploads._mapper, "copy"),
        "wait": (port._waits, "_until"),
        "submit": (port._uploads, "_submit"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*of[breaks], broken)
        if breaks == "submit" and port.in_place:
            port.write(handle, 0, memoryview(sent))
        else:
            with pytest.raises(KeyboardInterrupt):
                port.write(handle, 0, memoryview(sent))
    for _ in range(3):
        port.write(handle, 0, memoryview(sent))
    np.testing.assert_array_equal(there(port, handle, MANY), sent)
    port.destroy(handle)


def test_threads_that_copy_are_waited_for_before_the_next_verb(
    adapter: Want, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buffers are unmapped only once threads that copy are done."""
    held, going = threading.Event(), threading.Event()
    run: Callable[..., None] = mapping.run_tasks

    def slow(*args: object, **options: object) -> None:
        going.set()
        assert held.wait(20)
        run(*args, **options)

    def interrupted(event: threading.Event, deadline_s: float) -> bool:
        if event.is_set():
            return True
        assert going.wait(20)
        raise KeyboardInterrupt

    sent = noise(MANY)
    with native(adapter, in_place=False) as port:
        handle = port.buffer(MANY, "storage")
        with monkeypatch.context() as patch:
            patch.setattr(mapping, "run_tasks", slow)
            patch.setattr("rlxweb.gpu.waiting.happened", interrupted)
            with pytest.raises(KeyboardInterrupt):
                port.write(handle, 0, memoryview(sent))
        (stage,) = port._uploads._ring
        assert stage.native.map_state == "mapped"
        held.set()
        port.write(handle, 0, memoryview(sent))
        assert port._uploads._ring[0] is not stage
        np.testing.assert_array_equal(there(port, handle, MANY), sent)


def test_a_device_that_does_not_answer_is_lost_in_a_write(
    adapter: Want, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write to a device that does not answer ends by the deadline, as a read does."""
    port = NativePort(in_place=False)
    drive(port.open(adapter))
    handle = port.buffer(MANY, "storage")
    for _ in range(3):
        port.write(handle, 0, memoryview(noise(MANY)))
    monkeypatch.setattr("rlxweb.gpu.waiting.happened", lambda event, deadline_s: False)
    with pytest.raises(GpuTimeout):
        port.write(handle, 0, memoryview(noise(MANY)))
    with pytest.raises(DeviceLost):
        port.write(handle, 0, memoryview(noise(4)))
    monkeypatch.undo()
    drive(port.close())
    native_port._stuck().clear()


def test_a_device_in_the_hosts_memory_is_written_in_place(adapter: Want) -> None:
    """A device in the host's memory is written in place if it maps (not OpenGL)."""
    maps = adapter.backends != ("opengl",)
    for asked in (True, False):
        with native(adapter, in_place=asked) as port:
            assert (port.maps, port.in_place) == (maps, maps and asked)


def test_a_card_is_written_through_staging_buffers(
    adapter: Want, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card's memory is not the host's, so it is written through staging buffers."""
    asked = choice.asked

    def cards(*args: Any) -> Iterator[Any]:
        for facts, adapter, why in asked(*args):
            yield replace(facts, shared=False), adapter, why

    monkeypatch.setattr(choice, "asked", cards)
    with native(adapter) as port:
        assert (port.maps, port.in_place) == (False, False)
