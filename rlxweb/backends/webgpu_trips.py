"""Bare trips to a WebGPU device: submits, uploads, read-backs, buffers of its own.

What a calibration tells apart from kernels. Times nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from rlxweb.backends.protocol import Trip, Trips
from rlxweb.backends.webgpu_buffers import free
from rlxweb.errors import DeviceError
from rlxweb.gpu.port import Copy, Dispatch, Port, Range, Usage

TOUCH = """
@group(0) @binding(0) var<storage, read_write> cells: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { cells[id.x] += 1u; }
"""


@dataclass(slots=True)
class WebGpuTrips(Trips):
    """See `protocol.Trips`. Made by `on`."""

    port: Port
    owned: list[int] = field(default_factory=list)
    small: int = 0
    back: int = 0
    kernel: int = 0

    @classmethod
    async def on(cls, port: Port) -> Self:
        """Trips on an open port. Errors  those of making a pipeline and two buffers."""
        trips = cls(port)
        try:
            trips.small = trips._buffer(16, "storage")
            trips.back = trips._buffer(16, "readback")
            trips.kernel = await port.pipeline(TOUCH, ("write",), {})
        except DeviceError:
            if not port.lost:
                trips.close()
            raise
        trips.owned.append(trips.kernel)
        return trips

    def _buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        handle = self.port.buffer(nbytes, usage, is_fed=is_fed)
        self.owned.append(handle)
        return handle

    async def wait(self) -> None:
        await self.dispatches(0)

    async def dispatches(self, count: int) -> None:
        self.submit(count)
        await self.answered()

    def submit(self, count: int) -> None:
        """So many trivial kernels and a copy on their way; nothing is waited for."""
        one = Dispatch(self.kernel, (Range(self.small, 0, 16),), (1, 1, 1))
        back = Copy(Range(self.small, 0, 16), self.back, 0)
        self.port.submit([*([one] * count), back])

    async def answered(self) -> None:
        """Wait for what was submitted."""
        await self.port.read(self.back, 0, 4)

    def upload(self, nbytes: int) -> Trip:
        handle = self._buffer(nbytes, "storage", is_fed=True)
        data = memoryview(bytearray(nbytes))

        async def trip() -> None:
            self.port.write(handle, 0, data)
            await self.wait()

        return trip

    def readback(self, nbytes: int) -> Trip:
        source = self._buffer(nbytes, "storage")
        target = self._buffer(nbytes, "readback")

        async def trip() -> None:
            self.port.submit([Copy(Range(source, 0, nbytes), target, 0)])
            await self.port.read(target, 0, nbytes)

        return trip

    def close(self) -> None:
        free(self.port, self.owned)
