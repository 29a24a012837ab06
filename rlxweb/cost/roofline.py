"""The roofline: how fast work could be done at best, and how near to it a run came.

An engine multiplies no faster than its best measured rate of a matrix product and moves
bytes no faster than its measured copy. Work that does few operations a byte can only
reach the slope of the roof, the rest its flat part.

Source   Williams, Waterman, Patterson: Roofline, CACM 52 (2009) 65.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlxweb.cost.kinds import rates
from rlxweb.cost.record import Calibration


@dataclass(frozen=True, slots=True)
class Roofline:
    """What an engine could do at best.

    gflops   operations per ns: the best matrix product that was measured
    gbs      bytes per ns through its memory: the largest copy that was measured. What
             fits in a cache may be faster than this
    source   "calibrated" here, or "assumed" while nobody has measured
    """

    gflops: float
    gbs: float
    source: str = "calibrated"

    @classmethod
    def of(cls, record: Calibration, source: str) -> Roofline | None:
        """Of a record; None where it has no product or no copy."""
        product, copy = rates(record, "matmul"), rates(record, "copy")
        if not product or not copy:
            return None
        best = max(rate for _, rate in product.points)
        return cls(best, copy.points[-1][1], source)

    @property
    def ridge(self) -> float:
        """Operations a byte from which on moving is not what limits."""
        return self.gflops / self.gbs

    def at(self, intensity: float) -> float:
        """GFLOP/s that so many operations a byte can reach."""
        return min(self.gflops, intensity * self.gbs)

    def least_ns(self, flops: float, nbytes: float) -> float:
        """The shortest time for so many operations and bytes."""
        return max(flops / self.gflops, nbytes / self.gbs)

    def as_json(self) -> dict[str, Any]:
        """The figures and where they come from."""
        return {"gflops": self.gflops, "gbs": self.gbs, "source": self.source}


@dataclass(frozen=True, slots=True)
class Spent:
    """One part of a run: the time it took and the work it was.

    label     what it is, in words
    kind      of work, as in `cost/kinds.py`, or the op; "upload", "readback", "read"
    ns        of all its runs together
    flops     operations, by the ops' own counts; a fused step has those of its ops
    nbytes    that had to be read and written, each once
    launches  kernels, or calls
    times     how often it ran
    """

    label: str
    kind: str
    ns: float
    flops: float = 0.0
    nbytes: int = 0
    launches: int = 1
    times: int = 1

    @property
    def gflops(self) -> float:
        """Operations per ns."""
        return self.flops / self.ns if self.ns else 0.0

    @property
    def gbs(self) -> float:
        """Bytes per ns."""
        return self.nbytes / self.ns if self.ns else 0.0

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.nbytes if self.nbytes else 0.0

    def share_of(self, roof: Roofline | None) -> float | None:
        """Of the roof: its shortest time over the time it took; None without a roof.

        Above 1 where a cache was faster than memory.
        """
        if roof is None or not self.ns or not (self.flops or self.nbytes):
            return None
        return roof.least_ns(self.flops, self.nbytes) / self.ns

    def as_json(self, roof: Roofline | None = None) -> dict[str, Any]:
        """Every figure as plain data; times in nanoseconds."""
        return {
            "label": self.label,
            "kind": self.kind,
            "ns": self.ns,
            "times": self.times,
            "launches": self.launches,
            "bytes": self.nbytes,
            "flops": self.flops,
            "gbs": self.gbs,
            "gflops": self.gflops,
            "of_roof": self.share_of(roof),
        }
