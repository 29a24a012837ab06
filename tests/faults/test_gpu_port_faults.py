"""Device faults: at every call on the fake port, some on real adapters.

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

from rlxweb.core.errors import AdapterMissing, DeviceLost, GpuTimeout, RlxError
from rlxweb.gpu import deadline_waits, wgpu_port
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest, BufferCopy, BufferRange, Dispatch
from rlxweb.gpu.wgpu_port import WgpuPort
from tests.cli_runners import run_forked, run_python
from tests.fake_gpu_port import (
    FAILING_VERBS,
    FAILURE_KINDS,
    FailureKind,
    FakePort,
    InjectedFailure,
)
from tests.gpu_ports import ERROR_TYPES, open_native_port
from tests.run_in_threads import run_concurrently

DOUBLE_SHADER = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = 2u * x[id.x]; }
"""
# Each workgroup spins, then counts itself; llvmpipe stops loops at 65,535 turns, so
# the time comes from the number of workgroups.
SPIN_SHADER = """
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
SPIN_WORKGROUPS = {"llvmpipe": 250, "SwiftShader": 20}
"""Number of workgroups that take some tenths of a second, by adapter."""


def double_kernel(views: Any, constants: Any, grid: Any) -> None:
    """Compute on the fake port what DOUBLE_SHADER does."""
    x, y = (np.frombuffer(view, np.uint32) for view in views)
    np.multiply(x, 2, out=y)


async def workload(
    port: FakePort | WgpuPort, request: AdapterRequest
) -> list[list[int]]:
    """Open, compile, and run three times with new buffers between; does not close."""
    await port.open(request)
    kernel = await port.create_pipeline(DOUBLE_SHADER, ("read", "write"), {})
    results = []
    for round_index in range(3):
        x, y = port.create_buffer(16, "storage"), port.create_buffer(16, "storage")
        readback = port.create_buffer(16, "readback")
        port.write(
            x, 0, memoryview(np.arange(round_index, round_index + 4, dtype=np.uint32))
        )
        run = Dispatch(
            kernel, (BufferRange(x, 0, 16), BufferRange(y, 0, 16)), (1, 1, 1)
        )
        port.submit([run, BufferCopy(BufferRange(y, 0, 16), readback)])
        results.append(np.frombuffer(await port.read(readback, 0, 16), "u4").tolist())
        for handle in (x, y, readback):
            port.destroy(handle)
    return results


EXPECTED_ANSWERS = [[2 * (turn + i) for i in range(4)] for turn in range(3)]


def workload_call_count() -> int:
    port = FakePort(kernels={DOUBLE_SHADER: double_kernel})
    assert run_blocking(workload(port, AdapterRequest())) == EXPECTED_ANSWERS
    return len(port.calls)


def run_workload(port: FakePort) -> list[list[int]] | RlxError:
    try:
        return run_blocking(workload(port, AdapterRequest()))
    except RlxError as error:
        return error


@pytest.mark.parametrize("kind", FAILURE_KINDS)
def test_every_call_may_fail_in_every_way(kind: FailureKind) -> None:
    """A call that fails gives the right answer or error, and leaves nothing alive."""
    n_failures = 0
    for call in range(1, workload_call_count() + 1):
        port = FakePort(
            [InjectedFailure(call, kind)], kernels={DOUBLE_SHADER: double_kernel}
        )
        outcome = run_workload(port)
        if isinstance(outcome, RlxError):
            assert type(outcome) is ERROR_TYPES[kind]
            assert outcome.problem
            n_failures += 1
        else:
            assert outcome == EXPECTED_ANSWERS
        run_blocking(port.close())
        assert port.live_handles == set()
        fresh_port = FakePort(kernels={DOUBLE_SHADER: double_kernel})
        assert run_blocking(workload(fresh_port, AdapterRequest())) == EXPECTED_ANSWERS
    assert n_failures >= 1


@pytest.mark.parametrize("kind", FAILURE_KINDS)
def test_every_failing_verb_is_reached(kind: FailureKind) -> None:
    """The sweep above reaches every verb that a kind of failure can hit."""
    failed_verbs = set()
    for call in range(1, workload_call_count() + 1):
        port = FakePort(
            [InjectedFailure(call, kind)], kernels={DOUBLE_SHADER: double_kernel}
        )
        if isinstance(run_workload(port), RlxError):
            # An unseen loss shows at the read after the verb that it struck.
            failed_verbs.add(
                port.calls[call - 1] if kind == "lost-unseen" else port.calls[-1]
            )
    assert failed_verbs >= set(FAILING_VERBS[kind])


def test_native_port_runs_the_workload(adapter: AdapterRequest) -> None:
    """A native port runs the workload of the fake right."""
    port = WgpuPort()
    assert run_blocking(workload(port, adapter)) == EXPECTED_ANSWERS
    assert len(port.live_handles) == 1
    run_blocking(port.close())


@pytest.mark.parametrize("verb", ["buffer", "write", "pipeline", "submit", "read"])
def test_a_destroyed_device_is_a_lost_device(
    adapter: AdapterRequest, verb: str
) -> None:
    """A destroyed device is lost for every verb, whichever is called first.

    Another port works then.
    """
    port = WgpuPort()
    run_blocking(port.open(adapter))
    x, y = port.create_buffer(16, "storage"), port.create_buffer(16, "storage")
    kernel = run_blocking(port.create_pipeline(DOUBLE_SHADER, ("read", "write"), {}))
    run = Dispatch(kernel, (BufferRange(x, 0, 16), BufferRange(y, 0, 16)), (1, 1, 1))
    port._device.destroy()
    calls = {
        "buffer": lambda: port.create_buffer(4, "storage"),
        "write": lambda: port.write(x, 0, memoryview(b"1234")),
        "pipeline": lambda: run_blocking(
            port.create_pipeline(DOUBLE_SHADER, ("read", "write"), {})
        ),
        "submit": lambda: port.submit([run]),
        "read": lambda: run_blocking(port.read(y, 0, 16)),
    }
    with pytest.raises(DeviceLost):
        calls[verb]()
    assert port.lost
    for call in calls.values():
        with pytest.raises(DeviceLost):
            call()
    port.destroy(x)
    run_blocking(port.close())
    assert port.live_handles == set()
    fresh_port = WgpuPort()
    assert run_blocking(workload(fresh_port, adapter)) == EXPECTED_ANSWERS
    run_blocking(fresh_port.close())


def test_short_map_is_a_lost_device(
    adapter: AdapterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map shorter than the request, as wgpu-py reports it, is a loss."""
    monkeypatch.setattr(wgpu_port, "create_wgpu_ffi", lambda device, waits: None)
    with open_native_port(adapter) as port:
        handle = port.create_buffer(16, "readback")
        buffer_type = type(port._handle_table.buffers[handle])
        read_mapped = buffer_type.read_mapped

        def short_read_mapped(
            buffer: object, low: int, size: int, *, copy: bool
        ) -> memoryview:
            view: memoryview = read_mapped(buffer, low, size, copy=copy)[:-4]
            return view

        monkeypatch.setattr(buffer_type, "read_mapped", short_read_mapped)
        with pytest.raises(DeviceLost, match="only 12 of 16 bytes were mapped"):
            run_blocking(port.read(handle, 0, 16))


LOSSES_PROGRAM = """
import gc, threading
from rlxweb.core.errors import DeviceLost
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.gpu.port_protocol import AdapterRequest
for _ in range(20):
    port = WgpuPort()
    run_blocking(port.open(AdapterRequest(("vulkan",))))
    port._device.destroy()
    try:
        port.create_buffer(4, "storage")
    except DeviceLost:
        print("lost")
    run_blocking(port.close())
gc.collect()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(30)
print(threading.active_count(), [thread.name for thread in threading.enumerate()])
"""


@pytest.mark.requires_lavapipe
def test_repeated_losses_leave_no_thread() -> None:
    """Count the port's threads after twenty losses, in a process without others: on one
    adapter.
    """
    process = run_forked("-c", LOSSES_PROGRAM, timeout=120)
    assert process.out.split()[:20] == ["lost"] * 20, process.err
    assert int(process.out.split()[20]) <= 2, process.out


def test_a_wait_past_the_deadline_loses_the_device(
    adapter: AdapterRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait past the deadline loses a real device; the clock is always late here."""
    port = WgpuPort(deadline_s=12.0)
    run_blocking(port.open(adapter))
    handle = port.create_buffer(16, "storage")
    with monkeypatch.context() as patch:
        patch.setattr(deadline_waits, "wait_for_event", lambda event, deadline_s: False)
        with pytest.raises(GpuTimeout, match="deadline is 12 s"):
            run_blocking(port.read(handle, 0, 16))
    with pytest.raises(DeviceLost, match="did not answer within 12 s"):
        run_blocking(port.read(handle, 0, 16))
    port.destroy(handle)
    run_blocking(port.close())
    if "opengl" in adapter.backends:
        # A hung OpenGL adapter is not touched again: that would abort the process.
        with pytest.raises(
            AdapterMissing, match="it stopped responding earlier in this process"
        ):
            run_blocking(WgpuPort().open(adapter))
        wgpu_port._hung_adapters().clear()


HANG_PROGRAM = """
import sys, time
from rlxweb.core.errors import DeviceLost, GpuTimeout
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.gpu.port_protocol import AdapterRequest, BufferRange, Dispatch
backend, name, groups, spin = sys.argv[1:]
port = WgpuPort()
run_blocking(port.open(AdapterRequest((backend,), name)))
port.deadline_s = 0.3
count = port.create_buffer(4, "storage")
kernel = run_blocking(port.create_pipeline(spin, ("write",), {}))
start = time.monotonic()
try:
    port.submit([Dispatch(kernel, (BufferRange(count, 0, 4),), (int(groups), 1, 1))])
    run_blocking(port.read(count, 0, 4))
except GpuTimeout:
    print("timeout")
try:
    port.create_buffer(4, "storage")
except DeviceLost:
    print("lost")
run_blocking(port.close())
print("closed" if time.monotonic() - start < 1.3 + 5 else "late")
"""


def test_a_hung_device_times_out_and_the_process_can_exit(
    adapter: AdapterRequest,
) -> None:
    """A process whose device hangs gets a timeout and can exit.

    It is a process of its own, since the driver goes on computing until it ends.
    """
    groups = 150 * SPIN_WORKGROUPS[adapter.name]
    args = adapter.backends[0], adapter.name, groups, SPIN_SHADER
    process = run_python("-c", HANG_PROGRAM, *args, timeout=60)
    assert process.out.split() == ["timeout", "lost", "closed"], process.err
    assert process.code == 0


@contextmanager
def interrupt_during_wait(seconds: float) -> Iterator[None]:
    """Send Ctrl-C some seconds after the port began to wait for the device."""
    previous_handler = signal.getsignal(signal.SIGINT)
    happened = deadline_waits.wait_for_event
    interrupt = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))

    def wait_with_interrupt(event: threading.Event, deadline_s: float) -> bool:
        if not (event.is_set() or interrupt.is_alive() or interrupt.finished.is_set()):
            interrupt.start()
        return happened(event, deadline_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadline_waits, "wait_for_event", wait_with_interrupt)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            interrupt.cancel()
            signal.signal(signal.SIGINT, previous_handler)


def test_ctrl_c_reaches_the_caller_and_the_next_run_is_right(
    adapter: AdapterRequest,
) -> None:
    """Ctrl-C while the device works reaches the caller; the next run is right.

    The wait that was broken off is ended first.
    """
    with open_native_port(adapter, deadline_s=60.0) as port:
        counter = port.create_buffer(4, "storage")
        kernel = run_blocking(port.create_pipeline(SPIN_SHADER, ("write",), {}))
        groups = SPIN_WORKGROUPS[adapter.name]
        live = set(port.live_handles)
        run = Dispatch(kernel, (BufferRange(counter, 0, 4),), (groups, 1, 1))

        def submit_and_read() -> None:
            port.submit([run])
            run_blocking(port.read(counter, 0, 4))

        with interrupt_during_wait(0.02), pytest.raises(KeyboardInterrupt):
            submit_and_read()
        got = np.frombuffer(run_blocking(port.read(counter, 0, 4)), np.uint32)
        assert groups <= got[0] <= 2 * groups
        assert port.live_handles == live


def test_two_ports_of_one_adapter_work_in_two_threads(adapter: AdapterRequest) -> None:
    """Two ports of one adapter open, run and close at once in two threads.

    OpenGL shares one context among them.
    """
    answers: list[object] = []

    def work() -> None:
        for _ in range(2):
            port = WgpuPort()
            answers.append(run_blocking(workload(port, adapter)))
            run_blocking(port.close())
            del port
            gc.collect()

    run_concurrently([work] * 2)
    assert answers == [EXPECTED_ANSWERS] * 4
