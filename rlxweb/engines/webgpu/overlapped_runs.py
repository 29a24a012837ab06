"""Overlapping runs of one program on a port, with two sets of buffers.

While the device computes with one set of input and read-back buffers, the host fills
the other, and reads what the run before left there. Everything else is used by one run
at a time, in the order of submission. Knows buffers and commands, no arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rlxweb.core.errors import LimitExceeded, OutOfMemory
from rlxweb.core.limits import Limits
from rlxweb.engines.capabilities import OutputCallback
from rlxweb.engines.protocol import Array
from rlxweb.engines.webgpu.buffers import (
    checked_buffer_bytes,
    stored_bytes,
    write_buffer,
)
from rlxweb.engines.webgpu.dtype_demotion import demote_input
from rlxweb.engines.webgpu.program import (
    WebGpuProgram,
)
from rlxweb.gpu.port_protocol import (
    BufferClear,
    BufferCopy,
    BufferRange,
    Command,
    GpuPort,
)


@dataclass(frozen=True, slots=True)
class _RunBuffers:
    """Buffers of a run that the host touches, and all commands of the run."""

    input_handles: Mapping[str, int]
    readback_handle: int
    commands: tuple[Command, ...]


@dataclass(slots=True)
class OverlappedRuns:
    """Overlapping runs of a program whose lock is held by the caller.

    read_outputs  reads what a run left in a read-back buffer
    owned_handles  gets the handles of what is made here; the caller frees them
    """

    port: GpuPort
    limits: Limits
    program: WebGpuProgram
    read_outputs: Callable[[int], Awaitable[list[Array]]]
    owned_handles: list[int]

    async def run(
        self,
        feeds: Iterable[Mapping[str, Array]],
        consume: OutputCallback,
    ) -> None:
        """Run the program over each of the feeds; see `capabilities.run_each`."""
        program = self.program
        buffer_sets = [
            _RunBuffers(
                program.input_handles, program.readback_handle, program.commands
            )
        ]
        pending_readbacks: deque[int] = deque()
        for index, run_feeds in enumerate(feeds):
            if index == 1:
                buffer_sets += self._second_buffer_set()
            if len(pending_readbacks) == len(buffer_sets):
                consume(await self.read_outputs(pending_readbacks.popleft()))
            buffers = buffer_sets[index % len(buffer_sets)]
            for name, handle in buffers.input_handles.items():
                write_buffer(
                    self.port,
                    handle,
                    demote_input(self.program.plan, name, run_feeds[name]),
                )
            self.port.submit(buffers.commands)
            pending_readbacks.append(buffers.readback_handle)
        while pending_readbacks:
            consume(await self.read_outputs(pending_readbacks.popleft()))

    def _second_buffer_set(self) -> list[_RunBuffers]:
        """Create a second set of buffers; none if there is no memory for it: then runs
        take turns.
        """
        program, inputs = self.program, {}
        try:
            for name, node in program.plan.graph.named("input").items():
                nbytes = checked_buffer_bytes(
                    stored_bytes(node.type), self.limits, str(node)
                )
                inputs[name] = self.port.create_buffer(
                    nbytes, "storage", is_host_written=True
                )
                self.owned_handles.append(inputs[name])
            readback = self.port.create_buffer(program.readback_bytes, "readback")
            self.owned_handles.append(readback)
        except (LimitExceeded, OutOfMemory):
            return []
        replacements = {
            program.input_handles[name]: handle for name, handle in inputs.items()
        }
        replacements[program.readback_handle] = readback
        commands = tuple(
            _with_handles_replaced(command, replacements)
            for command in program.commands
        )
        return [_RunBuffers(inputs, readback, commands)]


def _with_handles_replaced(
    command: Command, replacements: Mapping[int, int]
) -> Command:
    """Return a command over other buffers."""

    def replaced_range(original: BufferRange) -> BufferRange:
        return replace(
            original, handle=replacements.get(original.handle, original.handle)
        )

    if isinstance(command, BufferClear):
        return BufferClear(replaced_range(command.target))
    if isinstance(command, BufferCopy):
        target = replacements.get(command.target, command.target)
        return replace(command, source=replaced_range(command.source), target=target)
    return replace(command, bindings=tuple(map(replaced_range, command.bindings)))
