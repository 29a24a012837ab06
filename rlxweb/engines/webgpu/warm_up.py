"""Warm-up of pipelines: shaders that a driver would compile within a run are compiled
before the first one.

Mesa's llvmpipe makes machine code of a shader when it is dispatched first, and some
shaders take it seconds. Of a large network that would be one wait for all of them, in
the first run, and longer than the deadline of a device that hangs. A dispatch of no
workgroups compiles as well and computes nothing; each shader has its own wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rlxweb.engines.webgpu.program import WebGpuProgram
from rlxweb.gpu.port_protocol import Dispatch, GpuPort

EMPTY_GRID: Final = (0, 1, 1)
"""Grid of no workgroups."""


class PipelineWarmUp:
    """Warm-up of a port's pipelines; `warmed_up` holds those that were dispatched
    before.
    """

    def __init__(self, port: GpuPort, warmed_up: set[int]) -> None:
        self._port = port
        # Software drivers compile late; a browser's implementation before that.
        facts = port.facts
        self._compiles_late = facts.software and facts.backend in ("vulkan", "opengl")
        self._warmed_up = warmed_up

    async def warm_up(self, program: WebGpuProgram) -> None:
        """Compile the pipelines that a program is the first to dispatch.

        Errors   those of the port.
        """
        if not self._compiles_late:
            return
        for command in program.commands:
            if (
                isinstance(command, Dispatch)
                and command.pipeline not in self._warmed_up
            ):
                await self._warm_up_pipeline(program, command)

    async def _warm_up_pipeline(
        self, program: WebGpuProgram, dispatch: Dispatch
    ) -> None:
        """Dispatch a pipeline with no workgroups and wait for its compilation."""
        self._port.submit([replace(dispatch, grid=EMPTY_GRID)])
        await self._port.read(program.readback_handle, 0, 0)  # the end of all work
        self._warmed_up.add(dispatch.pipeline)
