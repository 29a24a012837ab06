"""Timed run of a WebGPU program, step by step: by the device's timestamps if it has
them, else by waiting for each step.

Elsewhere every step is a submission of its own that is waited for, and the trip to the
device is in its time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rlxweb.engines.protocol import Array
from rlxweb.engines.timed_run_result import LapTimer, TimedRun
from rlxweb.engines.webgpu.program import WebGpuProgram
from rlxweb.gpu.port_protocol import (
    MAX_TIMED_LISTS,
    TIMESTAMP_FEATURE,
    Command,
    GpuPort,
)


async def time_program(
    port: GpuPort,
    program: WebGpuProgram,
    write: Callable[[], object],
    read_outputs: Callable[[], Awaitable[list[Array]]],
) -> TimedRun:
    """Run a program and time it step by step.

    write    puts the inputs where the program reads them
    read_outputs  what comes back once the read-back buffer is filled
    """
    # Lists, of which a port keeps nothing.
    commands = list(program.bindings.default.commands)
    copies = list(program.commands[len(commands) :])
    await _submit_and_wait(port, program)
    timer = LapTimer()
    write()
    await _submit_and_wait(port, program)
    upload_ns = timer.lap_ns()
    wait_ns = await _empty_wait_ns(port, program)
    timer.lap_ns()
    port.submit(commands)
    await _submit_and_wait(port, program)
    work_ns = timer.lap_ns() - wait_ns
    has_timestamps = TIMESTAMP_FEATURE in port.facts.features
    step_ns = await (_time_by_device_clock if has_timestamps else _time_step_by_step)(
        port, program
    )
    # The work was done twice, over inputs that nothing of it writes.
    timer.lap_ns()
    port.submit(copies)
    outputs = await read_outputs()
    return TimedRun(
        outputs,
        "device clock" if has_timestamps else "one step at a time",
        step_ns,
        upload_ns,
        max(work_ns, 0.0),
        timer.lap_ns(),
        program.kernel_variants,
    )


async def _submit_and_wait(
    port: GpuPort, program: WebGpuProgram, commands: Sequence[Command] = ()
) -> None:
    """Submit commands, if there are any, and wait for them."""
    if commands:
        port.submit(commands)
    await port.read(program.readback_handle, 0, 0)


async def _empty_wait_ns(port: GpuPort, program: WebGpuProgram) -> float:
    """Nanoseconds of a wait for nothing: the overhead of a wait behind commands."""
    timer = LapTimer()
    waits = []
    for _ in range(3):
        await _submit_and_wait(port, program)
        waits.append(timer.lap_ns())
    return min(waits)


async def _time_by_device_clock(
    port: GpuPort, program: WebGpuProgram
) -> tuple[float, ...]:
    """Time each step by the device's timestamps."""
    step_ns: list[float] = []
    for start in range(0, len(program.step_commands), MAX_TIMED_LISTS):
        step_ns += await port.time_command_lists(
            program.step_commands[start : start + MAX_TIMED_LISTS]
        )
    # Of what has no work the stamps tell only how often the clock ticks.
    pairs = zip(step_ns, program.step_commands, strict=True)
    return tuple(ns if commands else 0.0 for ns, commands in pairs)


async def _time_step_by_step(
    port: GpuPort, program: WebGpuProgram
) -> tuple[float, ...]:
    """Time each step as a submission of its own that is waited for."""
    timer, step_ns = LapTimer(), []
    for commands in program.step_commands:
        if not commands:
            step_ns.append(0.0)
            continue
        timer.lap_ns()
        await _submit_and_wait(port, program, commands)
        step_ns.append(timer.lap_ns())
    return tuple(step_ns)
