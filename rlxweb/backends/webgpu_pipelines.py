"""Pipelines of one device: made once per shader, forgotten when nobody needs them.

The least recently asked-for go first once there are more than a bound, but never one a
living program dispatches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Set
from typing import cast

from rlxweb.gpu.port import Access, Port
from rlxweb.kernels.launch import Shader

CAPACITY = 256


class Pipelines:
    """Shader → pipeline handle of a port."""

    def __init__(self, port: Port, capacity: int = CAPACITY) -> None:
        self.port = port
        self.capacity = capacity
        self._made: OrderedDict[Shader, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def values(self) -> tuple[int, ...]:
        """All handles, least recently asked-for first."""
        return tuple(self._made.values())

    async def get(self, shader: Shader) -> int:
        """The handle, compiled now if need be. Errors  ShaderRejected."""
        if shader not in self._made:
            layout = cast("tuple[Access, ...]", shader.layout)
            constants = dict(shader.constants)
            handle = await self.port.pipeline(shader.source, layout, constants)
            # Another thread or task may have made it meanwhile; one is kept.
            if self._made.setdefault(shader, handle) != handle:
                self.port.destroy(handle)
        self._made.move_to_end(shader)
        return self._made[shader]

    def trim(self, in_use: Set[int]) -> None:
        """Free the oldest beyond the bound, sparing handles that are in use."""
        for shader in list(self._made):
            if len(self._made) <= self.capacity:
                return
            if self._made[shader] not in in_use:
                self.port.destroy(self._made.pop(shader))

    def forget(self) -> None:
        """Drop all handles without freeing them: the port is about to close."""
        self._made.clear()
