"""Pipeline cache of one device: each shader is compiled once; the least recently used
are freed.

The least recently asked-for go first once there are more than a bound, or once they
take more memory, but never one that a program dispatches. Engines on the same port
share them: what one made is there for the next, and goes when the bound says so, not
never, though the engine be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Literal, cast
from weakref import WeakSet

from rlxweb.codegen.kernel_launch_records import ComputeShader
from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.core.lru_cache import LruCache
from rlxweb.gpu.port_protocol import BindingAccess, GpuPort

if TYPE_CHECKING:
    from rlxweb.engines.webgpu.program import WebGpuProgram
    from rlxweb.engines.webgpu.program_builder import WebGpuProgramBuilder

TrustLevel = Literal["none", "proven", "all"]
MAX_PIPELINES = 256
MAX_PIPELINE_BYTES = 128 << 20
# What drivers keep cannot be asked for. On lavapipe, the hungriest that was measured, a
# pipeline took 0.2 MB and 130 bytes for each character of its shader.
_BYTES_PER_PIPELINE, _BYTES_PER_CHARACTER = 200_000, 130


class PipelineCache:
    """Cache of a port's pipelines: shader → pipeline handle.

    trusted_shaders  which of the shaders that this package wrote are compiled without
                     checks: those that say they stay inside, all, or none
    programs  those that dispatch them, of every engine on the port
    builders  those that make such programs now
    warmed_up_handles  handles that were dispatched before
    """

    def __init__(
        self,
        port: GpuPort,
        capacity: int = MAX_PIPELINES,
        max_bytes: int = MAX_PIPELINE_BYTES,
        *,
        trusted_shaders: TrustLevel = "none",
    ) -> None:
        self.port = port
        self.trusted_shaders = trusted_shaders
        self.programs: WeakSet[WebGpuProgram] = WeakSet()
        self.builders: list[WebGpuProgramBuilder] = []
        self.warmed_up_handles: set[int] = set()
        self._handles: LruCache[tuple[ComputeShader, bool], int] = LruCache(
            capacity, max_bytes
        )
        self._lock = ForkSafeLock()

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def capacity(self) -> int:
        return self._handles.max_count

    def handles(self) -> tuple[int, ...]:
        """Return all handles, least recently used first."""
        return tuple(self._handles.values())

    async def get(
        self,
        shader: ComputeShader,
        claimed_handles: set[int],
        is_own_shader: bool = False,
    ) -> int:
        """Return a shader's handle, compiled now if need be.

        claimed_handles  gets it before anybody can free it
        is_own_shader  whether this package wrote all of the shader
        Errors    ShaderRejected.
        """
        is_trusted = self.trusted_shaders == "all" or (
            self.trusted_shaders == "proven" and shader.is_in_bounds
        )
        is_checked = not (is_own_shader and is_trusted)
        key = (shader, is_checked)
        while (cached_handle := self._claim(key, claimed_handles)) is None:
            layout = cast("tuple[BindingAccess, ...]", shader.layout)
            constants = dict(shader.overrides)
            handle = await self.port.create_pipeline(
                shader.source, layout, constants, needs_checks=is_checked
            )
            with self._lock:
                # Another thread or task may have made it meanwhile; one is kept.
                if key in self._handles:
                    self.port.destroy(handle)
                else:
                    nbytes = _BYTES_PER_PIPELINE + _BYTES_PER_CHARACTER * len(
                        shader.source
                    )
                    self._handles.put(key, handle, nbytes)
        return cached_handle

    def _claim(
        self, key: tuple[ComputeShader, bool], claimed_handles: set[int]
    ) -> int | None:
        """Return a cached handle and add it to `claimed_handles`; None if it is not
        cached.
        """
        with self._lock:
            handle = self._handles.get(key)
            if handle is not None:
                claimed_handles.add(handle)
            return handle

    def handles_in_use(self) -> set[int]:
        """Return the handles that a program dispatches, or one that is being built."""
        program_handles = {h for p in list(self.programs) for h in p.pipelines}
        return program_handles | {
            h for b in list(self.builders) for h in b.claimed_pipelines
        }

    def trim(self, handles_in_use: Callable[[], Set[int]] | None = None) -> None:
        """Free the oldest handles beyond the bounds, except those in use."""
        with self._lock:
            for handle in self._handles.evict(
                (handles_in_use or self.handles_in_use)().__contains__
            ):
                self.warmed_up_handles.discard(handle)
                self.port.destroy(handle)

    def clear(self) -> None:
        """Drop all handles without freeing them: the port is about to close."""
        self._handles.clear()
