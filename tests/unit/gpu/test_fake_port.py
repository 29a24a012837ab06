"""The fake port: real bytes, recorded commands, and failures where they were asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlxweb.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    LimitExceeded,
    ShaderRejected,
    UsageError,
)
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Clear, Copy, Dispatch, Range, Want
from rlxweb.limits import shrunk
from tests.fake_port import KINDS, STRIKES, Failure, FakePort, Kind
from tests.ports import TELLS, check_closes, check_not_open, fake

SOURCE = "@compute @workgroup_size(1) fn main() {}"


def add(views: Any, constants: Any, grid: Any) -> None:
    """What a shader that adds its constant K would do."""
    x, y = (np.frombuffer(view, np.float32) for view in views)
    np.add(x, constants["K"], out=y)


def test_bytes_come_back_as_written_and_padded_with_zeros() -> None:
    port = fake()
    handle = port.buffer(6, "storage")
    port.write(handle, 0, memoryview(b"\xff" * 8))
    port.write(handle, 4, memoryview(b"ab"))
    assert bytes(drive(port.read(handle, 0, 8))) == b"\xff\xff\xff\xffab\0\0"
    assert bytes(drive(port.read(handle, 3, 2))) == b"\xffa"
    assert drive(port.read(handle, 8, 0)).nbytes == 0


def test_what_is_read_is_a_copy() -> None:
    port = fake()
    handle = port.buffer(4, "storage")
    before = drive(port.read(handle, 0, 4))
    port.write(handle, 0, memoryview(b"1234"))
    assert bytes(before) == bytes(4)


def test_copies_clears_and_kernels_run_in_order() -> None:
    port = fake(kernels={SOURCE: add})
    x, y, back = (port.buffer(16, u) for u in ("storage", "storage", "readback"))
    port.write(x, 0, memoryview(np.arange(4, dtype=np.float32)))
    kernel = drive(port.pipeline(SOURCE, ("read", "write"), {"K": 2.0}))
    commands = (
        Dispatch(kernel, (Range(x, 0, 16), Range(y, 0, 16)), (1, 1, 1), "add"),
        Clear(Range(y, 0, 4)),
        Copy(Range(y, 0, 12), back, 4),
    )
    port.submit(commands)
    answer = np.frombuffer(drive(port.read(back, 0, 16)), np.float32)
    assert answer.tolist() == [0.0, 0.0, 3.0, 4.0]
    assert port.submissions == [commands]
    assert port.pipelines[kernel].constants == {"K": 2.0}
    assert port.calls[:2] == ["open", "buffer"]
    assert port.calls[-2:] == ["submit", "read"]


def test_a_kernel_cannot_write_what_it_reads() -> None:
    def bad(views: Any, *_: object) -> None:
        views[0][0] = 1

    port = fake(kernels={SOURCE: bad})
    x, y = port.buffer(4, "storage"), port.buffer(4, "storage")
    kernel = drive(port.pipeline(SOURCE, ("read", "write"), {}))
    with pytest.raises(TypeError, match="read-only"):
        port.submit([Dispatch(kernel, (Range(x, 0, 4), Range(y, 0, 4)), (1, 1, 1))])


def test_nothing_runs_when_one_command_is_refused() -> None:
    port = fake()
    x = port.buffer(4, "storage")
    port.write(x, 0, memoryview(b"1234"))
    with pytest.raises(DeviceError):
        port.submit([Clear(Range(x, 0, 4)), Clear(Range(x, 4, 4))])
    assert bytes(drive(port.read(x, 0, 4))) == b"1234"
    assert port.submissions == []


def test_bind_groups_are_counted_once_until_a_buffer_goes() -> None:
    port = fake()
    x, y = port.buffer(4, "storage"), port.buffer(4, "storage")
    kernel = drive(port.pipeline(SOURCE, ("read", "write"), {}))
    run = Dispatch(kernel, (Range(x, 0, 4), Range(y, 0, 4)), (1, 1, 1))
    for _ in range(3):
        port.submit([run, run])
    assert port.created == {"buffers": 2, "pipelines": 1, "bind_groups": 1}
    port.destroy(y)
    other = port.buffer(4, "storage")
    port.submit([Dispatch(kernel, (Range(x, 0, 4), Range(other, 0, 4)), (1, 1, 1))])
    assert port.created["bind_groups"] == 2


def test_limits_are_the_stricter_of_both_sides() -> None:
    port = FakePort(limits=shrunk())
    assert drive(port.open(Want())).limits.max_compute_workgroup_size_x == 32
    port = FakePort()
    assert drive(port.open(Want(limits=shrunk()))).limits == shrunk()
    with pytest.raises(LimitExceeded):
        drive(port.pipeline(SOURCE, ("read",) * 4, {}))


def test_features_are_those_wanted_and_there() -> None:
    port = FakePort(features=("shader-f16", "subgroup"))
    facts = drive(port.open(Want(features=("shader-f16", "timestamp-query"))))
    assert facts.features == {"shader-f16"}
    assert port.facts is facts


def test_another_backend_is_not_here() -> None:
    with pytest.raises(AdapterMissing, match="vulkan") as caught:
        drive(FakePort().open(Want(backends=("vulkan",))))
    assert caught.value.candidates == (("fake", "its backend is fake"),)
    assert drive(FakePort().open(Want(backends=("vulkan", "fake")))).name == "fake"


def test_a_shader_without_main_is_refused_with_its_source() -> None:
    with pytest.raises(ShaderRejected, match="main") as caught:
        drive(fake().pipeline("fn other() {}", (), {}))
    assert caught.value.source == "fn other() {}"


def test_handles_live_until_destroyed() -> None:
    port = fake()
    x = port.buffer(4, "storage")
    kernel = drive(port.pipeline(SOURCE, ("write",), {}))
    assert port.live == {x, kernel}
    port.destroy(x)
    with pytest.raises(DeviceError, match="no live buffer or pipeline"):
        port.destroy(x)
    with pytest.raises(DeviceError, match="no live buffer"):
        port.write(x, 0, memoryview(b"1234"))
    port.destroy(kernel)
    assert port.live == set()


def test_before_open_and_after_close_every_verb_says_so() -> None:
    check_not_open(FakePort())
    check_closes(fake())


CALLS: dict[str, Callable[[FakePort], object]] = {
    "open": lambda port: drive(port.open(Want())),
    "buffer": lambda port: port.buffer(4, "storage"),
    "write": lambda port: port.write(min(port.live), 0, memoryview(b"1234")),
    "pipeline": lambda port: drive(port.pipeline(SOURCE, ("write",), {})),
    "submit": lambda port: port.submit([]),
    "read": lambda port: drive(port.read(min(port.live), 0, 4)),
}


@pytest.mark.parametrize(
    ("kind", "verb"),
    [(k, v) for k in TELLS if k != "lost-unseen" for v in STRIKES[k]],
    ids=str,
)
def test_a_failure_strikes_once_with_its_error(kind: Kind, verb: str) -> None:
    """A failure strikes once; after a loss only destroy and close do not tell of it."""
    port = FakePort([Failure(verb, kind)])
    if verb != "open":
        CALLS["open"](port)
    if verb in ("write", "read"):
        CALLS["buffer"](port)
    with pytest.raises(TELLS[kind]) as caught:
        CALLS[verb](port)
    assert type(caught.value) is TELLS[kind]
    if TELLS[kind] in (DeviceLost, GpuTimeout):
        assert port.lost
        for handle in list(port.live):
            port.destroy(handle)
        with pytest.raises(DeviceLost):
            port.buffer(4, "storage")
    else:
        CALLS[verb](port)
    drive(port.close())
    assert port.live == set()


def test_every_kind_of_failure_is_tested_here() -> None:
    assert set(TELLS) == set(KINDS) == set(STRIKES)


def test_a_loss_unseen_shows_at_the_next_read_and_never_as_data() -> None:
    port = fake(Failure("submit", "lost-unseen"))
    handle = port.buffer(4, "storage")
    port.submit([])
    port.write(handle, 0, memoryview(b"1234"))
    with pytest.raises(DeviceLost, match="unseen"):
        drive(port.read(handle, 0, 4))


def test_a_failure_waits_for_a_call_it_can_strike() -> None:
    """Number 2 is a buffer; a refused shader strikes the next pipeline instead."""
    port = fake(Failure(2, "shader-refused"))
    port.buffer(4, "storage")
    with pytest.raises(ShaderRejected):
        drive(port.pipeline(SOURCE, (), {}))


def test_a_timeout_takes_pretended_time_only() -> None:
    port = fake(Failure("read", "timeout"), deadline_s=500.0)
    handle = port.buffer(4, "storage")
    with pytest.raises(GpuTimeout, match="deadline 500 s"):
        drive(port.read(handle, 0, 4))
    assert port.clock_s == 500.0


def test_a_plan_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown failure 'fire'"):
        FakePort([Failure(1, "fire")])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot strike 'submit'"):
        FakePort([Failure("submit", "out-of-memory")])
