"""A profiled run on one port: by the device's own clock where it has one.

Elsewhere every step is a submission of its own that is waited for, and the trip to the
device is in its time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rlxweb.backends.protocol import Array
from rlxweb.backends.timed import Laps, Timed
from rlxweb.backends.webgpu_program import WebGpuProgram
from rlxweb.gpu.port import MOST_TIMED, STAMPS, Command, Port


async def timed_run(
    port: Port,
    program: WebGpuProgram,
    write: Callable[[], object],
    outputs: Callable[[], Awaitable[list[Array]]],
) -> Timed:
    """The program's run, step by step.

    write    puts the inputs where the program reads them
    outputs  what comes back once the read-back buffer is filled
    """
    # Lists, of which a port keeps nothing.
    work = list(program.bindings.own.work)
    copies = list(program.commands[len(work) :])
    await _waited(port, program)
    lap = Laps()
    write()
    await _waited(port, program)
    upload_ns = lap.ns()
    wait_ns = await _wait_ns(port, program)
    lap.ns()
    port.submit(work)
    await _waited(port, program)
    work_ns = lap.ns() - wait_ns
    stamped = STAMPS in port.facts.features
    steps = await (_by_device if stamped else _one_by_one)(port, program)
    # The work was done twice, over inputs that nothing of it writes.
    lap.ns()
    port.submit(copies)
    outs = await outputs()
    return Timed(
        outs,
        "device clock" if stamped else "one step at a time",
        steps,
        upload_ns,
        max(work_ns, 0.0),
        lap.ns(),
    )


async def _waited(
    port: Port, program: WebGpuProgram, commands: Sequence[Command] = ()
) -> None:
    if commands:
        port.submit(commands)
    await port.read(program.readback, 0, 0)


async def _wait_ns(port: Port, program: WebGpuProgram) -> float:
    """A wait for nothing: what a wait behind work takes besides the work."""
    lap = Laps()
    found = []
    for _ in range(3):
        await _waited(port, program)
        found.append(lap.ns())
    return min(found)


async def _by_device(port: Port, program: WebGpuProgram) -> tuple[float, ...]:
    found: list[float] = []
    for at in range(0, len(program.steps), MOST_TIMED):
        found += await port.timed(program.steps[at : at + MOST_TIMED])
    # Of what has no work the stamps tell only how often the clock ticks.
    both = zip(found, program.steps, strict=True)
    return tuple(ns if commands else 0.0 for ns, commands in both)


async def _one_by_one(port: Port, program: WebGpuProgram) -> tuple[float, ...]:
    lap, found = Laps(), []
    for commands in program.steps:
        if not commands:
            found.append(0.0)
            continue
        lap.ns()
        await _waited(port, program, commands)
        found.append(lap.ns())
    return tuple(found)
