"""A wgpu device with nothing of rlxweb around it, for the hand-written shaders.

Everything a careful author would do once is done once: pipelines, bind groups and the
staging buffer are kept, a run is one submission, and results come through one mapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class RawDevice:
    """One adapter, opened through wgpu-py alone, with all its limits."""

    def __init__(self, name: str, backend: str = "Vulkan") -> None:
        import wgpu

        found = [
            adapter
            for adapter in wgpu.gpu.enumerate_adapters_sync()
            if name in adapter.info["device"]
            and adapter.info["backend_type"] == backend
        ]
        wanted = (
            "max-storage-buffer-binding-size",
            "max-compute-workgroup-storage-size",
            "max-compute-invocations-per-workgroup",
            "max-compute-workgroup-size-x",
        )
        self.device = found[0].request_device_sync(
            required_limits={limit: found[0].limits[limit] for limit in wanted}
        )
        self.queue = self.device.queue
        self._tick = self.staging(4)
        self._pipelines: dict[str, Any] = {}

    def close(self) -> None:
        self.device.destroy()

    def storage(self, content: Array | int) -> Any:
        """A storage buffer with these values, or of so many bytes."""
        nbytes = content if isinstance(content, int) else content.nbytes
        made = self.device.create_buffer(size=nbytes, usage="STORAGE|COPY_SRC|COPY_DST")
        if not isinstance(content, int):
            self.queue.write_buffer(made, 0, content)
        return made

    def staging(self, nbytes: int) -> Any:
        return self.device.create_buffer(size=nbytes, usage="MAP_READ|COPY_DST")

    def kernel(
        self, source: str, buffers: Sequence[Any], grid: tuple[int, ...]
    ) -> Kernel:
        """A compiled shader with its buffers bound, in binding order."""
        if source not in self._pipelines:
            module = self.device.create_shader_module(code=source)
            self._pipelines[source] = self.device.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": "main"}
            )
        pipeline = self._pipelines[source]
        group = self.device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": at, "resource": {"buffer": buffer}}
                for at, buffer in enumerate(buffers)
            ],
        )
        return Kernel(pipeline, group, grid)

    def run(
        self, kernels: Sequence[Kernel], read: Sequence[tuple[Any, Any]] = ()
    ) -> list[Array]:
        """All kernels in one pass and submission, then wait.

        read     (buffer, its staging buffer) pairs to bring back as float32 words; with
                 none, four bytes are awaited, which is how a wait is made
        """
        encoder = self.device.create_command_encoder()
        work = encoder.begin_compute_pass()
        bound = None
        for one in kernels:
            if one.pipeline is not bound:
                work.set_pipeline(one.pipeline)
                bound = one.pipeline
            work.set_bind_group(0, one.group)
            work.dispatch_workgroups(*one.grid)
        work.end()
        if not read:
            encoder.clear_buffer(self._tick, 0, 4)
        for source, stage in read:
            encoder.copy_buffer_to_buffer(source, 0, stage, 0, stage.size)
        self.queue.submit([encoder.finish()])
        return [_mapped(stage) for stage in [s for _, s in read] or [self._tick]]


class Kernel:
    """A pipeline, what is bound to it and how many workgroups it runs."""

    def __init__(self, pipeline: Any, group: Any, grid: tuple[int, ...]) -> None:
        self.pipeline = pipeline
        self.group = group
        self.grid = grid


def _mapped(stage: Any) -> Array:
    stage.map_async("READ").sync_wait()
    out = np.frombuffer(stage.read_mapped(copy=False), np.float32).copy()
    stage.unmap()
    return out
