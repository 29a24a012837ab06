"""Shaders that a driver would compile within a run are compiled before the first one.

Mesa's llvmpipe makes machine code of a shader when it is dispatched first, and some
shaders take it seconds. Of a large network that would be one wait for all of them, in
the first run, and longer than the deadline of a device that hangs. A dispatch of no
workgroups compiles as well and computes nothing; each shader has its own wait.

Under Vulkan it does so on one thread a device, and keeps the code on disk: of many
shaders some are compiled on devices of their own, and this one finds them there. Where
it keeps nothing they are compiled once more, and right as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Final, cast

from rlxweb.backends.webgpu_program import WebGpuProgram
from rlxweb.errors import RlxError
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Access, Dispatch, Port, Range
from rlxweb.host.row_blocks import usable_cpus
from rlxweb.kernels.launch import Launch

NOTHING: Final = (0, 1, 1)
"""A grid of no workgroups."""
LEAST_SHARED: Final = 6
"""Shaders for which more devices are opened."""
_MOST_DEVICES: Final = 4
_ROOM: Final = 256
"""Bytes of a buffer that nothing is read from."""


class Warm:
    """The pipelines of a port that were dispatched before, in `done`."""

    def __init__(self, port: Port, done: set[int]) -> None:
        self._port = port
        # Software drivers compile late; a browser's implementation before that.
        facts = port.facts
        self._is_late = facts.software and facts.backend in ("vulkan", "opengl")
        self._shares = facts.backend == "vulkan" and "Mesa" in facts.driver
        self._done = done

    async def up(self, program: WebGpuProgram, launches: Mapping[int, Launch]) -> None:
        """Compile what a program dispatches and no other before it did.

        launches   pipeline → its first launch, of all that it dispatches
        Errors   those of the port.
        """
        if not self._is_late:
            return
        cold = {
            one.pipeline: one
            for one in reversed(program.commands)
            if isinstance(one, Dispatch) and one.pipeline not in self._done
        }
        # The longest first, so that all devices end at about the same time.
        length = {at: len(launches[at].shader.source) for at in cold}
        todo = deque(sorted(cold, key=length.__getitem__, reverse=True))
        elsewhere: list[int] = []
        with ThreadPoolExecutor(_MOST_DEVICES) as threads:
            for _ in range(self._others(len(cold))):
                threads.submit(drive, self._elsewhere(todo, launches, elsewhere))
            while (at := _next(todo)) is not None:
                await self._one(program, cold[at])
        for at in elsewhere:
            await self._one(program, cold[at])

    async def _one(self, program: WebGpuProgram, dispatch: Dispatch) -> None:
        self._port.submit([replace(dispatch, grid=NOTHING)])
        await self._port.read(program.readback, 0, 0)  # the end of all work
        self._done.add(dispatch.pipeline)

    def _others(self, shaders: int) -> int:
        """Devices that help."""
        if not self._shares or shaders < LEAST_SHARED:
            return 0
        return min(usable_cpus(), _MOST_DEVICES, shaders // 2) - 1

    async def _elsewhere(
        self, todo: deque[int], launches: Mapping[int, Launch], taken: list[int]
    ) -> None:
        """Some shaders, on a device that lives as long as that takes."""
        with suppress(RlxError):  # whoever needs them hears of it
            other = await self._port.another()
            if other is None:
                return
            try:
                while (at := _next(todo)) is not None:
                    taken.append(at)
                    await _compiled(other, launches[at])
            finally:
                await other.close()


def _next(todo: deque[int]) -> int | None:
    """What another thread has not taken yet."""
    try:
        return todo.popleft()
    except IndexError:
        return None


async def _compiled(port: Port, launch: Launch) -> None:
    """A launch of no workgroups on another port. Its uniforms are the same: a driver
    may put them into the code.
    """
    shader = launch.shader
    layout = cast("tuple[Access, ...]", shader.layout)
    handle = await port.pipeline(shader.source, layout, dict(shader.constants))
    bound = [Range(port.buffer(_ROOM, "storage"), 0, _ROOM) for _ in shader.layout[:-1]]
    nbytes = len(launch.uniforms)
    uniforms = port.buffer(nbytes, "uniform")
    port.write(uniforms, 0, memoryview(launch.uniforms))
    spans = (*bound, Range(uniforms, 0, nbytes))
    port.submit([Dispatch(handle, spans, NOTHING)])
    await port.read(port.buffer(4, "readback"), 0, 0)
