"""Workgroup memory that records which lane touched each cell, and counts of its cost.

Every cell knows who wrote and who read it since the last barrier; two lanes of which
one wrote are a race. What nobody wrote yet is NaN, so that it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

WARP, BANKS, SECTOR = 32, 32, 8
SEVERAL_LANES = -2
PART_STRIDE = 1 << 40
"""Stride between the cell numbers of two parts; more cells than any array has."""


@dataclass(slots=True)
class WorkgroupCounts:
    """Memory traffic, barriers and operations of a workgroup.

    wavefronts   of workgroup memory; `requests` of them there would be without a bank
                 hit twice
    sectors      of 32 bytes moved from and to storage, `ideal` if all were whole
    """

    barriers: int = 0
    requests: int = 0
    wavefronts: int = 0
    worst: int = 0
    sectors: int = 0
    ideal: float = 0.0
    operations: int = 0

    @property
    def by_name(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class TrackedWorkgroupArray:
    """Array of workgroup memory: its values, and which lane touched each cell."""

    name: str
    values: Any
    writer: Any = None
    reader: Any = None

    def __post_init__(self) -> None:
        self.reset_accesses()

    def reset_accesses(self) -> None:
        self.writer = np.full(len(self.values), -1)
        self.reader = np.full(len(self.values), -1)

    def _check_race(self, last_lanes: Any, cells: Any, lanes: Any, action: str) -> None:
        previous = last_lanes[cells]
        conflicting = (previous != -1) & (previous != lanes)
        if conflicting.any():
            cell = int(cells[conflicting][0])
            other = int(previous[conflicting][0])
            raise DataRace(
                f"{self.name}[{cell}]: lane {int(lanes[conflicting][0])} {action} lane "
                f"{'several' if other == SEVERAL_LANES else other} since the last "
                f"barrier"
            )

    def record_access(self, cells: Any, lanes: Any, writes: bool) -> None:
        self._check_race(
            self.writer, cells, lanes, f"{'writes' if writes else 'reads'} after"
        )
        if writes:
            self._check_race(self.reader, cells, lanes, "writes what was read by")
            self.writer[cells] = lanes
            if (self.writer[cells] != lanes).any():
                raise DataRace(f"{self.name}: two lanes write one cell at once")
            return
        is_sole_reader = (self.reader[cells] == -1) | (self.reader[cells] == lanes)
        self.reader[cells] = np.where(is_sole_reader, lanes, SEVERAL_LANES)
        self.reader[cells[self.reader[cells] != lanes]] = SEVERAL_LANES


class DataRace(AssertionError):
    """Lanes depend on an order that no barrier enforces."""


def count_bank_conflicts(
    counts: WorkgroupCounts, cells: Any, mask: Any, width: int
) -> None:
    """Count one workgroup-memory request of every warp; a vec2 is served to half a warp
    at once.
    """
    part, words = _distinct_cells(cells, mask, WARP // width)
    if words.size:
        banks = (words[:, None] * width + np.arange(width)) % BANKS
        hits = np.bincount((part[:, None] * BANKS + banks).ravel())
        hits = np.maximum.reduceat(hits, np.arange(0, len(hits), BANKS))
        counts.requests += int(np.count_nonzero(hits))
        counts.wavefronts += int(hits.sum())
        counts.worst = max(counts.worst, int(hits.max()))


def count_sectors(counts: WorkgroupCounts, cells: Any, mask: Any, width: int) -> None:
    """Count the storage sectors that every warp touches."""
    part, words = _distinct_cells(cells, mask, WARP)
    if words.size:
        counts.sectors += len(np.unique(part * PART_STRIDE + words * width // SECTOR))
        counts.ideal += words.size * width / SECTOR


def _distinct_cells(cells: Any, mask: Any, size: int) -> tuple[Any, Any]:
    """Return the distinct cells of each part of `size` lanes as (part, cell)."""
    pairs = np.unique((np.arange(len(cells)) // size * PART_STRIDE + cells)[mask])
    return pairs // PART_STRIDE, pairs % PART_STRIDE
