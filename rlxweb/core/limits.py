"""Device limits as plain data: granted by the device, or assumed by a plan.

Values default to WebGPU's own core defaults. `tiny_limits()` is the tiny device on
which the tests run every splitting path over small data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

# llvmpipe ends every loop, silently, once one invocation has made 65,535 turns in all
# its loops together (seen with Mesa 22.3 on Vulkan and OpenGL), and browsers lose the
# device over long dispatches: longer loops are cut into several dispatches everywhere.
MAX_LOOP_ITERATIONS = 65_000
IntPairReducer = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Device limits that a plan depends on: WebGPU's names in snake case, sizes in
    bytes.
    """

    max_buffer_size: int = 256 << 20
    max_storage_buffer_binding_size: int = 128 << 20
    max_storage_buffers_per_shader_stage: int = 8
    min_storage_buffer_offset_alignment: int = 256
    min_uniform_buffer_offset_alignment: int = 256
    max_uniform_buffer_binding_size: int = 64 << 10
    max_compute_workgroups_per_dimension: int = 65_535
    max_compute_invocations_per_workgroup: int = 256
    max_compute_workgroup_size_x: int = 256
    max_compute_workgroup_storage_size: int = 16 << 10

    @property
    def max_linear_workgroup_size(self) -> int:
        """Number of invocations in the largest one-dimensional workgroup."""
        return min(
            self.max_compute_invocations_per_workgroup,
            self.max_compute_workgroup_size_x,
        )

    def intersect(self, other: Limits) -> Limits:
        """Return the stricter limit of two records, field by field (the larger
        alignment).
        """
        return self._combine(other, reduce_alignment=max, reduce_maximum=min)

    def at_least_core(self) -> Limits:
        """Return these limits with each at least WebGPU's core default.

        A wish below the defaults (a shrunk device in a test) bounds what a plan uses;
        it must not change what the driver itself validates.
        """
        return self._combine(Limits(), reduce_alignment=min, reduce_maximum=max)

    def _combine(
        self,
        other: Limits,
        *,
        reduce_alignment: IntPairReducer,
        reduce_maximum: IntPairReducer,
    ) -> Limits:
        """Combine two records field by field, alignments and maxima by a function
        each.
        """

        def combined_value(name: str) -> int:
            reduce_pair = (
                reduce_alignment if name.startswith("min_") else reduce_maximum
            )
            return reduce_pair(getattr(self, name), getattr(other, name))

        return Limits(*(combined_value(field.name) for field in fields(self)))


def tiny_limits() -> Limits:
    """Return limits so small that every split, fold and merge occurs on small data."""
    return Limits(
        max_storage_buffer_binding_size=4096,
        max_storage_buffers_per_shader_stage=3,
        max_compute_workgroups_per_dimension=7,
        max_compute_invocations_per_workgroup=32,
        max_compute_workgroup_size_x=32,
        max_compute_workgroup_storage_size=512,
    )
