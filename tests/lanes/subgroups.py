"""Subgroups of a workgroup, laid out as some driver may lay them out.

WGSL promises neither their size nor that neighbours by local_invocation_index are
neighbours in one; a driver may also start more, smaller ones than it tells of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.lanes.memory import WARP

SHUFFLES = ("subgroupShuffleXor", "subgroupShuffle", "subgroupBroadcast")


@dataclass(frozen=True, slots=True)
class Subgroups:
    """size: what a shader is told; held: lanes that are there; seed: of their order."""

    size: int = WARP
    held: int = 0
    seed: int | None = None

    def seats(self, lanes: int) -> Any:
        """The place of every lane in the row of all subgroups."""
        if self.seed is None:
            return np.arange(lanes)
        return np.random.default_rng(self.seed).permutation(lanes)

    def told(self, builtin: str, lanes: Any) -> Any:
        """A builtin value; the names are those of the kernels' parameters."""
        held = self.held or self.size
        seats = self.seats(len(lanes))
        found = {
            "size": self.size,
            "subgroups": -(-len(lanes) // held),
            "subgroup": seats // held,
            "within": seats % held,
        }
        return np.asarray(found[builtin]).astype(np.uint32)

    def across(self, name: str, x: Any, other: Any) -> Any:
        """A subgroup function of the values of all lanes."""
        seats, held = self.seats(len(x)), self.held or self.size
        row = np.empty_like(x)
        row[seats] = x
        within = seats % held
        if name in SHUFFLES:
            to = within ^ other if name.endswith("Xor") else other + 0 * within
            assert (np.asarray(to) < held).all(), f"{name}: nobody is there"
            return row[seats - within + to]
        parts = row.reshape(-1, held)
        of = {"subgroupAdd": np.sum, "subgroupMax": np.max, "subgroupMin": np.min}[name]
        return np.repeat(of(parts, axis=1).astype(x.dtype), held)[seats]
