"""Shaders that a driver would compile within a run are compiled before the first one.

Mesa's llvmpipe makes machine code of a shader when it is dispatched first, and some
shaders take it seconds. Of a large network that would be one wait for all of them, in
the first run, and longer than the deadline of a device that hangs. A dispatch of no
workgroups compiles as well and computes nothing; each shader has its own wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rlxweb.backends.webgpu_program import WebGpuProgram
from rlxweb.gpu.port import Dispatch, Port

NOTHING: Final = (0, 1, 1)
"""A grid of no workgroups."""


class Warm:
    """The pipelines of a port that were dispatched before, in `done`."""

    def __init__(self, port: Port, done: set[int]) -> None:
        self._port = port
        # Software drivers compile late; a browser's implementation before that.
        facts = port.facts
        self._is_late = facts.software and facts.backend in ("vulkan", "opengl")
        self._done = done

    async def up(self, program: WebGpuProgram) -> None:
        """Compile what a program dispatches and no other before it did.

        Errors   those of the port.
        """
        if not self._is_late:
            return
        for command in program.commands:
            if isinstance(command, Dispatch) and command.pipeline not in self._done:
                await self._one(program, command)

    async def _one(self, program: WebGpuProgram, dispatch: Dispatch) -> None:
        self._port.submit([replace(dispatch, grid=NOTHING)])
        await self._port.read(program.readback, 0, 0)  # the end of all work
        self._done.add(dispatch.pipeline)
