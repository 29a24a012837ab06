"""Device limits as plain data: what was granted, and what a plan must stay under.

Values default to WebGPU's own core defaults. `shrunk()` is the tiny device on which the
tests run every splitting path over small data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

# llvmpipe ends every loop, silently, once one invocation has made 65,535 turns in all
# its loops together (seen with Mesa 22.3 on Vulkan and OpenGL), and browsers lose the
# device over long dispatches: longer loops are cut into several dispatches everywhere.
MAX_TURNS = 65_000
Of = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits a plan depends on; names are WebGPU's in snake case, sizes in bytes."""

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
    def workgroup_lanes(self) -> int:
        """Invocations of the largest workgroup that is a line."""
        return min(
            self.max_compute_invocations_per_workgroup,
            self.max_compute_workgroup_size_x,
        )

    def lowest(self, other: Limits) -> Limits:
        """The stricter of two records, field by field (alignments: the larger)."""
        return self._with(other, alignment=max, most=min)

    def at_least_core(self) -> Limits:
        """The same, with whatever is below WebGPU's own defaults raised to them.

        A wish below the defaults (a shrunk device in a test) bounds what a plan uses;
        it must not change what the driver itself validates.
        """
        return self._with(Limits(), alignment=min, most=max)

    def _with(self, other: Limits, *, alignment: Of, most: Of) -> Limits:
        def settled(name: str) -> int:
            of = alignment if name.startswith("min_") else most
            return of(getattr(self, name), getattr(other, name))

        return Limits(*(settled(field.name) for field in fields(self)))


def shrunk() -> Limits:
    """A device so small that every split, fold and merge happens on small data."""
    return Limits(
        max_storage_buffer_binding_size=4096,
        max_storage_buffers_per_shader_stage=3,
        max_compute_workgroups_per_dimension=7,
        max_compute_invocations_per_workgroup=32,
        max_compute_workgroup_size_x=32,
        max_compute_workgroup_storage_size=512,
    )
