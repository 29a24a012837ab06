"""Bare trips on the fake port: what is submitted, what moves, and that it is freed."""

from __future__ import annotations

import pytest

from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.backends.webgpu_trips import TOUCH, WebGpuTrips
from rlxweb.errors import DeviceError, OutOfMemory
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Copy, Dispatch
from tests.fake_port import Failure, FakePort
from tests.ports import fake


def trips_on(*fail: Failure) -> tuple[FakePort, WebGpuTrips]:
    port = fake(*fail)
    trips = drive(WebGpuBackend(port).trips())
    port.calls.clear()
    return port, trips


def test_a_wait_is_one_small_copy_and_its_read() -> None:
    port, trips = trips_on()
    drive(trips.wait())
    assert port.calls == ["submit", "read"]
    (command,) = port.submissions[-1]
    assert isinstance(command, Copy)
    assert command.source.nbytes == 16


@pytest.mark.parametrize("count", [1, 64])
def test_dispatches_go_in_one_submission(count: int) -> None:
    """Dispatches of an all but empty kernel go in one submission, with one wait."""
    port, trips = trips_on()
    drive(trips.dispatches(count))
    assert port.calls == ["submit", "read"]
    *kernels, last = port.submissions[-1]
    assert isinstance(last, Copy)
    assert len(kernels) == count
    for one in kernels:
        assert isinstance(one, Dispatch)
        assert (one.grid, port.pipelines[one.pipeline].source) == ((1, 1, 1), TOUCH)


def test_transfers_move_their_bytes_each_time() -> None:
    """Buffers are made once, before anything is timed."""
    port, trips = trips_on()
    up, back = trips.upload(4096), trips.readback(8192)
    assert port.calls == ["buffer"] * 3
    for _ in range(2):
        port.calls.clear()
        drive(up())
        assert port.calls == ["write", "submit", "read"]
        port.calls.clear()
        drive(back())
        assert port.calls == ["submit", "read"]
        (moved,) = port.submissions[-1]
        assert isinstance(moved, Copy)
        assert moved.source.nbytes == 8192


def test_all_is_freed() -> None:
    """Closing frees even what a transfer left when memory ran out; twice is fine."""
    port, trips = trips_on()
    trips.upload(64)
    port._pending.append(Failure(len(port.calls) + 2, "out-of-memory"))
    with pytest.raises(OutOfMemory):
        trips.readback(64)
    assert port.live
    trips.close()
    trips.close()
    assert not port.live


@pytest.mark.parametrize(
    "fail",
    [
        Failure("pipeline", "shader-refused"),
        Failure(3, "out-of-memory"),
        Failure("pipeline", "lost"),
    ],
    ids=str,
)
def test_trips_that_cannot_be_made_leave_nothing(fail: Failure) -> None:
    """Trips that cannot be made leave nothing; on a lost device everything is lost."""
    port = fake(fail)
    with pytest.raises(DeviceError):
        drive(WebGpuTrips.on(port))
    assert bool(port.live) == bool(port.lost)
