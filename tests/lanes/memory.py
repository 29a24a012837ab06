"""Workgroup memory that remembers who touched it, and what its use costs.

Every cell knows who wrote and who read it since the last barrier; two lanes of which
one wrote are a race. What nobody wrote yet is NaN, so that it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

WARP, BANKS, SECTOR = 32, 32, 8
MANY = -2
SPAN = 1 << 40
"""More cells than any array has."""


@dataclass(slots=True)
class Counts:
    """What a workgroup did.

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
class Shared:
    """An array of workgroup memory: values, and who touched each cell."""

    name: str
    values: Any
    writer: Any = None
    reader: Any = None

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.writer = np.full(len(self.values), -1)
        self.reader = np.full(len(self.values), -1)

    def _clash(self, who: Any, cells: Any, lanes: Any, what: str) -> None:
        there = who[cells]
        bad = (there != -1) & (there != lanes)
        if bad.any():
            cell = int(cells[bad][0])
            other = int(there[bad][0])
            raise Race(
                f"{self.name}[{cell}]: lane {int(lanes[bad][0])} {what} lane "
                f"{'several' if other == MANY else other} since the last barrier"
            )

    def touched(self, cells: Any, lanes: Any, writes: bool) -> None:
        self._clash(
            self.writer, cells, lanes, f"{'writes' if writes else 'reads'} after"
        )
        if writes:
            self._clash(self.reader, cells, lanes, "writes what was read by")
            self.writer[cells] = lanes
            if (self.writer[cells] != lanes).any():
                raise Race(f"{self.name}: two lanes write one cell at once")
            return
        alone = (self.reader[cells] == -1) | (self.reader[cells] == lanes)
        self.reader[cells] = np.where(alone, lanes, MANY)
        self.reader[cells[self.reader[cells] != lanes]] = MANY


class Race(AssertionError):
    """Lanes depend on an order that nothing gives them."""


def conflicts(counts: Counts, cells: Any, mask: Any, wide: int) -> None:
    """Notes one request of every warp. A vec2 is served to half of it at once."""
    part, words = _distinct(cells, mask, WARP // wide)
    if words.size:
        banks = (words[:, None] * wide + np.arange(wide)) % BANKS
        hits = np.bincount((part[:, None] * BANKS + banks).ravel())
        hits = np.maximum.reduceat(hits, np.arange(0, len(hits), BANKS))
        counts.requests += int(np.count_nonzero(hits))
        counts.wavefronts += int(hits.sum())
        counts.worst = max(counts.worst, int(hits.max()))


def moved(counts: Counts, cells: Any, mask: Any, wide: int) -> None:
    """Notes the sectors of storage that every warp touches."""
    part, words = _distinct(cells, mask, WARP)
    if words.size:
        counts.sectors += len(np.unique(part * SPAN + words * wide // SECTOR))
        counts.ideal += words.size * wide / SECTOR


def _distinct(cells: Any, mask: Any, size: int) -> tuple[Any, Any]:
    """The distinct cells of each part of so many lanes, as (part, cell)."""
    pairs = np.unique((np.arange(len(cells)) // size * SPAN + cells)[mask])
    return pairs // SPAN, pairs % SPAN
