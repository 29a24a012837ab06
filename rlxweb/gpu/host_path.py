"""Ways by which many bytes travel between the host and a device, each behind a gate.

Rule, as for kernels: deleting any row changes no result, only time. The first row whose
gate opens is taken; the last one is open to all. Few bytes always go as the last row
says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rlxweb.gpu.port import DeviceFacts

LARGE = 1 << 20
"""Bytes from which it matters how they travel."""
IN_PLACE = "mappable-primary-buffers"
"""wgpu's feature of storage buffers that the host maps: Dawn has none."""

Writes = Literal["queue", "staged", "in place"]
Gate = Callable[[DeviceFacts], bool]


@dataclass(frozen=True, slots=True)
class HostPath:
    """One way.

    gate     whether it is taken on a device, with all its adapter has
    writes   "queue": the driver makes a staging buffer for each write. "staged": a ring
             of mapped buffers, kept while there is a large buffer to be filled.
             "in place": inputs are mapped themselves; what else is written is staged
    threads  that copy to and from mapped memory at most
    stages   buffers that a read of storage takes in turns
    """

    name: str
    gate: Gate
    writes: Writes
    threads: int = 1
    stages: int = 1


def on_gpu(facts: DeviceFacts) -> bool:
    """GPUs. On an adapter on the CPU a kept staging buffer is one more copy."""
    return not facts.software


def in_shared_memory(facts: DeviceFacts) -> bool:
    """GPUs and CPUs that compute in the host's memory, where that can be mapped."""
    return facts.shared and IN_PLACE in facts.features


def always(facts: DeviceFacts) -> bool:
    """The gate that is never shut."""
    return True


PATHS = (
    HostPath("in place", in_shared_memory, "in place", threads=4, stages=2),
    HostPath("staged, by threads", on_gpu, "staged", threads=4, stages=2),
    HostPath("queue", always, "queue"),
)


def path_for(facts: DeviceFacts) -> HostPath:
    """The way that is taken on a device."""
    return next(path for path in PATHS if path.gate(facts))


def paths_of(facts: DeviceFacts) -> tuple[HostPath, ...]:
    """The ways that a device could take, for whoever compares them."""
    has = facts.shared and IN_PLACE in facts.features
    return tuple(path for path in PATHS if has or path.writes != "in place")
