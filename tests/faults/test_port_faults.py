"""What a device can do to us: at every call on the fake, some on real adapters.

The workload here is the port's own (open, buffers, shader, runs, close); what a session
makes of the same failures is tested with the session.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from rlxweb.errors import AdapterMissing, DeviceLost, GpuTimeout, RlxError
from rlxweb.gpu import native as native_port
from rlxweb.gpu import waiting
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Copy, Dispatch, Range, Want
from tests.command_line import forked, python
from tests.fake_port import KINDS, STRIKES, Failure, FakePort, Kind
from tests.ports import TELLS, native
from tests.threads import at_once

DOUBLE = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = 2u * x[id.x]; }
"""
# Each workgroup spins, then counts itself; llvmpipe stops loops at 65,535 turns, so
# the time comes from the number of workgroups.
SPIN = """
@group(0) @binding(0) var<storage, read_write> count: array<atomic<u32>>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) at: u32) {
    var state = at + 1u;
    for (var i = 0u; i < 60000u; i++) {
        state = (state ^ (state << 7u)) + i;
        state = state ^ (state >> 9u);
    }
    if (at == 0u) { atomicAdd(&count[0], select(1u, 2u, state == 0u)); }
}
"""
SPINS = {"llvmpipe": 250, "SwiftShader": 20}
"""Workgroups that take some tenths of a second."""


def double(views: Any, constants: Any, grid: Any) -> None:
    """What DOUBLE does, for the fake."""
    x, y = (np.frombuffer(view, np.uint32) for view in views)
    np.multiply(x, 2, out=y)


async def workload(port: FakePort | NativePort, want: Want) -> list[list[int]]:
    """Open, compile, three runs with new buffers between them; not closed."""
    await port.open(want)
    kernel = await port.pipeline(DOUBLE, ("read", "write"), {})
    answers = []
    for turn in range(3):
        x, y = port.buffer(16, "storage"), port.buffer(16, "storage")
        back = port.buffer(16, "readback")
        port.write(x, 0, memoryview(np.arange(turn, turn + 4, dtype=np.uint32)))
        run = Dispatch(kernel, (Range(x, 0, 16), Range(y, 0, 16)), (1, 1, 1))
        port.submit([run, Copy(Range(y, 0, 16), back)])
        answers.append(np.frombuffer(await port.read(back, 0, 16), "u4").tolist())
        for handle in (x, y, back):
            port.destroy(handle)
    return answers


RIGHT = [[2 * (turn + i) for i in range(4)] for turn in range(3)]


def calls_of_the_workload() -> int:
    port = FakePort(kernels={DOUBLE: double})
    assert drive(workload(port, Want())) == RIGHT
    return len(port.calls)


def attempt(port: FakePort) -> list[list[int]] | RlxError:
    try:
        return drive(workload(port, Want()))
    except RlxError as error:
        return error


@pytest.mark.parametrize("kind", KINDS)
def test_every_call_may_fail_in_every_way(kind: Kind) -> None:
    """A call that fails gives the right answer or error, and leaves nothing alive."""
    struck = 0
    for call in range(1, calls_of_the_workload() + 1):
        port = FakePort([Failure(call, kind)], kernels={DOUBLE: double})
        outcome = attempt(port)
        if isinstance(outcome, RlxError):
            assert type(outcome) is TELLS[kind]
            assert outcome.problem
            struck += 1
        else:
            assert outcome == RIGHT
        drive(port.close())
        assert port.live == set()
        again = FakePort(kernels={DOUBLE: double})
        assert drive(workload(again, Want())) == RIGHT
    assert struck >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_each_failure_struck_where_it_was_aimed(kind: Kind) -> None:
    """The sweep above reaches every verb that a kind can strike."""
    struck = set()
    for call in range(1, calls_of_the_workload() + 1):
        port = FakePort([Failure(call, kind)], kernels={DOUBLE: double})
        if isinstance(attempt(port), RlxError):
            # An unseen loss shows at the read after the verb that it struck.
            struck.add(
                port.calls[call - 1] if kind == "lost-unseen" else port.calls[-1]
            )
    assert struck >= set(STRIKES[kind])


def test_a_native_workload_is_right(adapter: Want) -> None:
    """A native port runs the fake's commands right."""
    port = NativePort()
    assert drive(workload(port, adapter)) == RIGHT
    assert len(port.live) == 1
    drive(port.close())


@pytest.mark.parametrize("verb", ["buffer", "write", "pipeline", "submit", "read"])
def test_a_destroyed_device_is_a_lost_device(adapter: Want, verb: str) -> None:
    """A destroyed device is lost for every verb, whichever meets it first.

    Another port works then.
    """
    port = NativePort()
    drive(port.open(adapter))
    x, y = port.buffer(16, "storage"), port.buffer(16, "storage")
    kernel = drive(port.pipeline(DOUBLE, ("read", "write"), {}))
    run = Dispatch(kernel, (Range(x, 0, 16), Range(y, 0, 16)), (1, 1, 1))
    port._device.destroy()
    calls = {
        "buffer": lambda: port.buffer(4, "storage"),
        "write": lambda: port.write(x, 0, memoryview(b"1234")),
        "pipeline": lambda: drive(port.pipeline(DOUBLE, ("read", "write"), {})),
        "submit": lambda: port.submit([run]),
        "read": lambda: drive(port.read(y, 0, 16)),
    }
    with pytest.raises(DeviceLost):
        calls[verb]()
    assert port.lost
    for call in calls.values():
        with pytest.raises(DeviceLost):
            call()
    port.destroy(x)
    drive(port.close())
    assert port.live == set()
    again = NativePort()
    assert drive(workload(again, adapter)) == RIGHT
    drive(again.close())


def test_a_map_that_is_too_short_is_no_answer(
    adapter: Want, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map shorter than what was read, as wgpu-py itself tells it, is a loss."""
    monkeypatch.setattr(native_port, "quick", lambda device, waits: None)
    with native(adapter) as port:
        handle = port.buffer(16, "readback")
        kind = type(port._tables.buffers[handle])
        whole = kind.read_mapped

        def short(buffer: object, low: int, size: int, *, copy: bool) -> memoryview:
            view: memoryview = whole(buffer, low, size, copy=copy)[:-4]
            return view

        monkeypatch.setattr(kind, "read_mapped", short)
        with pytest.raises(DeviceLost, match="mapped 12 bytes of 16"):
            drive(port.read(handle, 0, 16))


LOSSES = """
import gc, threading
from rlxweb.errors import DeviceLost
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Want
for _ in range(20):
    port = NativePort()
    drive(port.open(Want(("vulkan",))))
    port._device.destroy()
    try:
        port.buffer(4, "storage")
    except DeviceLost:
        print("lost")
    drive(port.close())
gc.collect()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(30)
print(threading.active_count(), [thread.name for thread in threading.enumerate()])
"""


@pytest.mark.requires_lavapipe
def test_twenty_losses_in_a_row_leave_no_thread_behind() -> None:
    """Threads of the port, in a process that has no others: on one adapter."""
    done = forked("-c", LOSSES, timeout=120)
    assert done.out.split()[:20] == ["lost"] * 20, done.err
    assert int(done.out.split()[20]) <= 2, done.out


def test_a_wait_past_the_deadline_loses_the_device(
    adapter: Want, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait past the deadline loses a real device; the clock is always late here."""
    port = NativePort(deadline_s=12.0)
    drive(port.open(adapter))
    handle = port.buffer(16, "storage")
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "happened", lambda event, deadline_s: False)
        with pytest.raises(GpuTimeout, match="deadline 12 s"):
            drive(port.read(handle, 0, 16))
    with pytest.raises(DeviceLost, match="did not answer within 12 s"):
        drive(port.read(handle, 0, 16))
    port.destroy(handle)
    drive(port.close())
    if "opengl" in adapter.backends:
        # A hung OpenGL adapter is not touched again: that would abort the process.
        with pytest.raises(AdapterMissing, match="it hangs in this process"):
            drive(NativePort().open(adapter))
        native_port._stuck().clear()


HANGS = """
import sys, time
from rlxweb.errors import DeviceLost, GpuTimeout
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Dispatch, Range, Want
backend, name, groups, spin = sys.argv[1:]
port = NativePort()
drive(port.open(Want((backend,), name)))
port.deadline_s = 0.3
count = port.buffer(4, "storage")
kernel = drive(port.pipeline(spin, ("write",), {}))
start = time.monotonic()
try:
    port.submit([Dispatch(kernel, (Range(count, 0, 4),), (int(groups), 1, 1))])
    drive(port.read(count, 0, 4))
except GpuTimeout:
    print("timeout")
try:
    port.buffer(4, "storage")
except DeviceLost:
    print("lost")
drive(port.close())
print("closed" if time.monotonic() - start < 1.3 + 5 else "late")
"""


def test_a_hung_device_times_out_and_the_process_can_exit(adapter: Want) -> None:
    """A process whose device hangs gets a timeout and can exit.

    It is a process of its own, since the driver goes on computing until it ends.
    """
    groups = 150 * SPINS[adapter.name]
    args = adapter.backends[0], adapter.name, groups, SPIN
    done = python("-c", HANGS, *args, timeout=60)
    assert done.out.split() == ["timeout", "lost", "closed"], done.err
    assert done.code == 0


@contextmanager
def ctrl_c_in_a_wait(seconds: float) -> Iterator[None]:
    """Ctrl-C, so long after the port began to wait for the device."""
    before, happened = signal.getsignal(signal.SIGINT), waiting.happened
    pressed = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))

    def waits(event: threading.Event, deadline_s: float) -> bool:
        if not (event.is_set() or pressed.is_alive() or pressed.finished.is_set()):
            pressed.start()
        return happened(event, deadline_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "happened", waits)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            pressed.cancel()
            signal.signal(signal.SIGINT, before)


def test_ctrl_c_reaches_the_caller_and_the_next_run_is_right(adapter: Want) -> None:
    """Ctrl-C while the device works reaches the caller; the next run is right.

    The wait that was broken off is ended first.
    """
    with native(adapter, deadline_s=60.0) as port:
        counter = port.buffer(4, "storage")
        kernel = drive(port.pipeline(SPIN, ("write",), {}))
        groups = SPINS[adapter.name]
        live = set(port.live)
        run = Dispatch(kernel, (Range(counter, 0, 4),), (groups, 1, 1))

        def submit_and_read() -> None:
            port.submit([run])
            drive(port.read(counter, 0, 4))

        with ctrl_c_in_a_wait(0.02), pytest.raises(KeyboardInterrupt):
            submit_and_read()
        got = np.frombuffer(drive(port.read(counter, 0, 4)), np.uint32)
        assert groups <= got[0] <= 2 * groups
        assert port.live == live


def test_two_ports_of_one_adapter_work_in_two_threads(adapter: Want) -> None:
    """Two ports of one adapter open, run and close at once in two threads.

    OpenGL shares one context among them.
    """
    answers: list[object] = []

    def work() -> None:
        for _ in range(2):
            port = NativePort()
            answers.append(drive(workload(port, adapter)))
            drive(port.close())
            del port
            gc.collect()

    at_once([work] * 2)
    assert answers == [RIGHT] * 4
