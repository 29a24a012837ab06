"""Latency probes of a WebGPU device: submissions, uploads, read-backs, with buffers of
their own.

What a calibration tells apart from kernels. Times nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from rlxweb.core.errors import DeviceError
from rlxweb.engines.capabilities import LatencyProbe, LatencyProbes
from rlxweb.engines.webgpu.buffers import free_handles
from rlxweb.gpu.port_protocol import (
    BufferCopy,
    BufferRange,
    BufferUsage,
    Dispatch,
    GpuPort,
)

TRIVIAL_SHADER = """
@group(0) @binding(0) var<storage, read_write> cells: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { cells[id.x] += 1u; }
"""


@dataclass(slots=True)
class WebGpuLatencyProbes(LatencyProbes):
    """Latency probes on a port, created by `create`; see `LatencyProbes`."""

    port: GpuPort
    owned_handles: list[int] = field(default_factory=list)
    storage_handle: int = 0
    readback_handle: int = 0
    pipeline: int = 0

    @classmethod
    async def create(cls, port: GpuPort) -> Self:
        """Create latency probes on an open port. Errors  those of creating a pipeline
        and two buffers.
        """
        probes = cls(port)
        try:
            probes.storage_handle = probes._create_buffer(16, "storage")
            probes.readback_handle = probes._create_buffer(16, "readback")
            probes.pipeline = await port.create_pipeline(TRIVIAL_SHADER, ("write",), {})
        except DeviceError:
            if not port.lost:
                probes.close()
            raise
        probes.owned_handles.append(probes.pipeline)
        return probes

    def _create_buffer(
        self, nbytes: int, usage: BufferUsage, *, is_fed: bool = False
    ) -> int:
        """Create a buffer that `close` frees."""
        handle = self.port.create_buffer(nbytes, usage, is_host_written=is_fed)
        self.owned_handles.append(handle)
        return handle

    async def submit_and_wait(self) -> None:
        await self.dispatch_and_wait(0)

    async def dispatch_and_wait(self, count: int) -> None:
        self.submit_dispatches(count)
        await self.wait_for_submitted()

    def submit_dispatches(self, count: int) -> None:
        """Submit `count` trivial kernels and a copy; nothing is waited for."""
        dispatch = Dispatch(
            self.pipeline, (BufferRange(self.storage_handle, 0, 16),), (1, 1, 1)
        )
        copy = BufferCopy(
            BufferRange(self.storage_handle, 0, 16), self.readback_handle, 0
        )
        self.port.submit([*([dispatch] * count), copy])

    async def wait_for_submitted(self) -> None:
        """Wait for the submitted commands."""
        await self.port.read(self.readback_handle, 0, 4)

    def upload_probe(self, nbytes: int) -> LatencyProbe:
        handle = self._create_buffer(nbytes, "storage", is_fed=True)
        data = memoryview(bytearray(nbytes))

        async def probe() -> None:
            self.port.write(handle, 0, data)
            await self.submit_and_wait()

        return probe

    def readback_probe(self, nbytes: int) -> LatencyProbe:
        source = self._create_buffer(nbytes, "storage")
        target = self._create_buffer(nbytes, "readback")

        async def probe() -> None:
            self.port.submit([BufferCopy(BufferRange(source, 0, nbytes), target, 0)])
            await self.port.read(target, 0, nbytes)

        return probe

    def close(self) -> None:
        free_handles(self.port, self.owned_handles)
