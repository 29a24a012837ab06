"""Plain wgpu device without rlxweb, for the hand-written shaders.

Everything a careful author would do once is done once: pipelines, bind groups and the
staging buffer are kept, a run is one submission, and results come through one mapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class RawDevice:
    """Adapter opened through wgpu-py alone, with the limits that the shaders need."""

    def __init__(self, name: str, backend: str = "Vulkan") -> None:
        import wgpu

        adapters = [
            adapter
            for adapter in wgpu.gpu.enumerate_adapters_sync()
            if name in adapter.info["device"]
            and adapter.info["backend_type"] == backend
        ]
        raised_limits = (
            "max-storage-buffer-binding-size",
            "max-compute-workgroup-storage-size",
            "max-compute-invocations-per-workgroup",
            "max-compute-workgroup-size-x",
        )
        self.device = adapters[0].request_device_sync(
            required_limits={
                limit: adapters[0].limits[limit] for limit in raised_limits
            }
        )
        self.queue = self.device.queue
        self._wait_buffer = self.staging(4)
        self._pipelines: dict[str, Any] = {}

    def close(self) -> None:
        self.device.destroy()

    def storage(self, content: Array | int) -> Any:
        """Create a storage buffer with these values, or with this many bytes."""
        nbytes = content if isinstance(content, int) else content.nbytes
        buffer = self.device.create_buffer(
            size=nbytes, usage="STORAGE|COPY_SRC|COPY_DST"
        )
        if not isinstance(content, int):
            self.queue.write_buffer(buffer, 0, content)
        return buffer

    def staging(self, nbytes: int) -> Any:
        return self.device.create_buffer(size=nbytes, usage="MAP_READ|COPY_DST")

    def kernel(
        self, source: str, buffers: Sequence[Any], grid: tuple[int, ...]
    ) -> RawKernel:
        """Compile a shader and bind its buffers in binding order."""
        if source not in self._pipelines:
            module = self.device.create_shader_module(code=source)
            self._pipelines[source] = self.device.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": "main"}
            )
        pipeline = self._pipelines[source]
        group = self.device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": index, "resource": {"buffer": buffer}}
                for index, buffer in enumerate(buffers)
            ],
        )
        return RawKernel(pipeline, group, grid)

    def run(
        self, kernels: Sequence[RawKernel], read: Sequence[tuple[Any, Any]] = ()
    ) -> list[Array]:
        """Run all kernels in one pass and one submission, then wait.

        read     (buffer, its staging buffer) pairs to bring back as float32 words; with
                 none, four bytes are awaited, which is how a wait is made
        """
        encoder = self.device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        current_pipeline = None
        for kernel in kernels:
            if kernel.pipeline is not current_pipeline:
                compute_pass.set_pipeline(kernel.pipeline)
                current_pipeline = kernel.pipeline
            compute_pass.set_bind_group(0, kernel.group)
            compute_pass.dispatch_workgroups(*kernel.grid)
        compute_pass.end()
        if not read:
            encoder.clear_buffer(self._wait_buffer, 0, 4)
        for source, stage in read:
            encoder.copy_buffer_to_buffer(source, 0, stage, 0, stage.size)
        self.queue.submit([encoder.finish()])
        return [
            _read_mapped(stage) for stage in [s for _, s in read] or [self._wait_buffer]
        ]


class RawKernel:
    """Pipeline, its bind group and the number of workgroups."""

    def __init__(self, pipeline: Any, group: Any, grid: tuple[int, ...]) -> None:
        self.pipeline = pipeline
        self.group = group
        self.grid = grid


def _read_mapped(stage: Any) -> Array:
    stage.map_async("READ").sync_wait()
    out = np.frombuffer(stage.read_mapped(copy=False), np.float32).copy()
    stage.unmap()
    return out
