"""Runs of one program after the other that overlap on a port.

While the device computes with one set of input and read-back buffers, the host fills
the other, and reads what the run before left there. Everything else is used by one run
at a time, in the order of submission. Knows buffers and commands, no arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rlxweb.backends.protocol import Array
from rlxweb.backends.webgpu_buffers import buffer_bytes, stored_bytes, write
from rlxweb.backends.webgpu_narrow import fed
from rlxweb.backends.webgpu_program import (
    WebGpuProgram,
)
from rlxweb.errors import LimitExceeded, OutOfMemory
from rlxweb.gpu.port import Clear, Command, Copy, Port, Range
from rlxweb.limits import Limits


@dataclass(frozen=True, slots=True)
class _Set:
    """What the host touches of a run, and all of its commands."""

    inputs: Mapping[str, int]
    readback: int
    commands: tuple[Command, ...]


@dataclass(slots=True)
class Batches:
    """Runs of a program whose turn is held.

    outputs  reads what a run left in a read-back buffer
    owned    gets the handles of what is made here; the caller frees them
    """

    port: Port
    limits: Limits
    program: WebGpuProgram
    outputs: Callable[[int], Awaitable[list[Array]]]
    owned: list[int]

    async def run(
        self,
        feeds: Iterable[Mapping[str, Array]],
        take: Callable[[list[Array]], object],
    ) -> None:
        """See `Backend.run_each`."""
        mine = self.program
        sets = [_Set(mine.inputs, mine.readback, mine.commands)]
        going: deque[int] = deque()
        for at, one in enumerate(feeds):
            if at == 1:
                sets += self._another()
            if len(going) == len(sets):
                take(await self.outputs(going.popleft()))
            now = sets[at % len(sets)]
            for name, handle in now.inputs.items():
                write(self.port, handle, fed(self.program.plan, name, one[name]))
            self.port.submit(now.commands)
            going.append(now.readback)
        while going:
            take(await self.outputs(going.popleft()))

    def _another(self) -> list[_Set]:
        """A second set; none where there is no room for it: runs take turns then."""
        program, inputs = self.program, {}
        try:
            for name, node in program.plan.graph.named("input").items():
                nbytes = buffer_bytes(stored_bytes(node.type), self.limits, str(node))
                inputs[name] = self.port.buffer(nbytes, "storage", is_fed=True)
                self.owned.append(inputs[name])
            readback = self.port.buffer(program.readback_bytes, "readback")
            self.owned.append(readback)
        except (LimitExceeded, OutOfMemory):
            return []
        instead = {program.inputs[name]: handle for name, handle in inputs.items()}
        instead[program.readback] = readback
        commands = tuple(_renamed(command, instead) for command in program.commands)
        return [_Set(inputs, readback, commands)]


def _renamed(command: Command, instead: Mapping[int, int]) -> Command:
    def span(old: Range) -> Range:
        return replace(old, handle=instead.get(old.handle, old.handle))

    if isinstance(command, Clear):
        return Clear(span(command.target))
    if isinstance(command, Copy):
        target = instead.get(command.target, command.target)
        return replace(command, source=span(command.source), target=target)
    return replace(command, bindings=tuple(map(span, command.bindings)))
