"""Roofline model: the best possible speed of work, and how near a run came to it.

An engine multiplies no faster than its best measured rate of a matrix product and moves
bytes no faster than its measured copy. Work that does few operations a byte can only
reach the slope of the roof, the rest its flat part.

Source   Williams, Waterman, Patterson: Roofline, CACM 52 (2009) 65.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlxweb.cost.calibration_record import Calibration
from rlxweb.cost.work_kinds import measured_rates


@dataclass(frozen=True, slots=True)
class Roofline:
    """Upper limits of an engine's speed.

    gflops   operations per ns: the best matrix product that was measured
    gbs      bytes per ns through its memory: the largest copy that was measured. What
             fits in a cache may be faster than this
    source   "calibrated" here, or "assumed" while nobody has measured
    """

    gflops: float
    gbs: float
    source: str = "calibrated"

    @classmethod
    def from_record(cls, record: Calibration, source: str) -> Roofline | None:
        """Return the roofline of a calibration record; None where it has no product or
        no copy.
        """
        matmul_rates = measured_rates(record, "matmul")
        copy_rates = measured_rates(record, "copy")
        if not matmul_rates or not copy_rates:
            return None
        best = max(rate for _, rate in matmul_rates.points)
        return cls(best, copy_rates.points[-1][1], source)

    @property
    def ridge(self) -> float:
        """Arithmetic intensity (operations per byte) above which memory bandwidth is
        not the limit.
        """
        return self.gflops / self.gbs

    def attainable_gflops(self, intensity: float) -> float:
        """Return the GFLOP/s attainable at an arithmetic intensity (operations per
        byte).
        """
        return min(self.gflops, intensity * self.gbs)

    def min_ns(self, flops: float, nbytes: float) -> float:
        """Return the shortest possible time for a number of operations and bytes."""
        return max(flops / self.gflops, nbytes / self.gbs)

    def as_json(self) -> dict[str, Any]:
        """Return the figures and their source as plain data."""
        return {"gflops": self.gflops, "gbs": self.gbs, "source": self.source}


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """Part of a profiled run: its time and its work.

    label     what it is, in words
    kind      of work, as in `work_kinds.py`, or the op; "upload", "readback",
              "read"
    ns        of all its runs together
    flops     operations, by the ops' own counts; a fused step has those of its ops
    nbytes    that had to be read and written, each once
    launches  kernels, or calls
    run_count  how often it ran
    variants  the kernel variants that ran it; none for the ops' own kernels
    """

    label: str
    kind: str
    ns: float
    flops: float = 0.0
    nbytes: int = 0
    launches: int = 1
    run_count: int = 1
    variants: tuple[str, ...] = ()

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
        """Arithmetic intensity: operations per byte."""
        return self.flops / self.nbytes if self.nbytes else 0.0

    def roofline_fraction(self, roof: Roofline | None) -> float | None:
        """Return the roofline's shortest time over the measured time; None without a
        roofline.

        Above 1 where a cache was faster than memory.
        """
        if roof is None or not self.ns or not (self.flops or self.nbytes):
            return None
        return roof.min_ns(self.flops, self.nbytes) / self.ns

    def as_json(self, roof: Roofline | None = None) -> dict[str, Any]:
        """Return every figure as plain data; times in nanoseconds."""
        return {
            "label": self.label,
            "kind": self.kind,
            "ns": self.ns,
            "times": self.run_count,
            "launches": self.launches,
            "bytes": self.nbytes,
            "flops": self.flops,
            "gbs": self.gbs,
            "gflops": self.gflops,
            "of_roof": self.roofline_fraction(roof),
            "variants": list(self.variants),
        }
