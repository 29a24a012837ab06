"""Subgroups of a workgroup in one of the layouts that a driver may choose.

WGSL promises neither their size nor that neighbours by local_invocation_index are
neighbours in one; a driver may also start more, smaller ones than it tells of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.lanes.workgroup_access_tracking import WARP

SHUFFLES = ("subgroupShuffleXor", "subgroupShuffle", "subgroupBroadcast")


@dataclass(frozen=True, slots=True)
class SubgroupLayout:
    """Layout of subgroups: the size that the shader sees, the lanes started in each,
    and the seed of the lane order.
    """

    size: int = WARP
    started_size: int = 0
    seed: int | None = None

    def lane_positions(self, lanes: int) -> Any:
        """Return the position of every lane in the sequence of all subgroups."""
        if self.seed is None:
            return np.arange(lanes)
        return np.random.default_rng(self.seed).permutation(lanes)

    def builtin_value(self, builtin: str, lanes: Any) -> Any:
        """Return a builtin value; the names are those of the kernels' parameters."""
        size = self.started_size or self.size
        positions = self.lane_positions(len(lanes))
        values = {
            "size": self.size,
            "subgroups": -(-len(lanes) // size),
            "subgroup": positions // size,
            "within": positions % size,
        }
        return np.asarray(values[builtin]).astype(np.uint32)

    def apply(self, name: str, x: Any, operand: Any) -> Any:
        """Apply a subgroup function to the values of all lanes."""
        positions, size = self.lane_positions(len(x)), self.started_size or self.size
        row = np.empty_like(x)
        row[positions] = x
        local_index = positions % size
        if name in SHUFFLES:
            source = (
                local_index ^ operand
                if name.endswith("Xor")
                else operand + 0 * local_index
            )
            assert (np.asarray(source) < size).all(), f"{name}: nobody is there"
            return row[positions - local_index + source]
        parts = row.reshape(-1, size)
        reduce = {"subgroupAdd": np.sum, "subgroupMax": np.max, "subgroupMin": np.min}[
            name
        ]
        return np.repeat(reduce(parts, axis=1).astype(x.dtype), size)[positions]
