"""Strategy record of a Welch job: where it averages, its candidates at a place, and
their engines.

A new one is a record in a file of its own (`cpu_welch_strategies.py` and
`fused_device_strategy.py` are the examples) and a row of the table in
`welch_candidates.py`. Knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from rlxweb.cost.decision import Candidate
from rlxweb.cost.welch_model import WelchSize
from rlxweb.cost.welch_strategy_names import WelchPeaksStrategy
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.frequency_bins import BinRange
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.signal.precision import ResolvedPrecision
from rlxweb.signal.welch_engine import WelchEngine


@dataclass(frozen=True, slots=True)
class WelchEstimate:
    """Requested estimate: rows [n_rows, n_samples] and k peaks of each.

    k             0 asks for the spectrum itself
    mode          "bins" or "peaks", as `welch_peaks` has them
    min_segments  1 where the caller allows a single segment to stand for all
    strategy      "auto", or the name of the one to be used
    sample_type   how the samples came to be of the spec's dtype
    is_on_device  the samples lie on the device already
    band          bins that are wanted of the spectrum; None: all
    max_error     what the power may be off by, relative; 0: no more than by rounding
    model         a transform that was trained for such a job
    use_compiled  by code compiled for it: None where there is such already; True has it
                  made first; False never, so that the last digit does not depend on
                  what ran before
    """

    spec: WelchSpec
    n_rows: int
    n_samples: int
    k: int
    mode: str = "bins"
    min_segments: int | None = None
    strategy: str = "auto"
    sample_type: ResolvedPrecision | None = None
    is_on_device: bool = False
    use_compiled: bool | None = None
    band: BinRange | None = None
    max_error: float = 0.0
    model: LearnedTransform | None = None

    @property
    def host_only_reason(self) -> str:
        """Reason why no device computes it; "" when one does."""
        if self.spec.dtype == "float64":
            return self.float64_sample_type.host_only_reason
        return self.spec.host_only_reason

    @property
    def float64_sample_type(self) -> ResolvedPrecision:
        """Sample type of samples that are computed in float64."""
        return self.sample_type or ResolvedPrecision(self.spec.dtype, self.spec.dtype)

    @property
    def size(self) -> WelchSize:
        """Size of the job for the cost model."""
        segments = self.spec.segments_per_row(self.n_samples)
        size = WelchSize(self.spec.nfft, segments, self.n_rows, self.k, self.n_samples)
        return size if self.band is None else replace(size, band=len(self.band))

    def with_n_segments(self, segments: int) -> Self:
        """Return the same estimate over the first `segments` segments; 0: as many as
        requested.
        """
        if not segments:
            return self
        return replace(self, spec=replace(self.spec, n_segments=segments))


@dataclass(frozen=True, slots=True)
class WelchStrategy:
    """Strategy to estimate peaks.

    name      ours: "fast"
    label     RLX's
    runs_on_host  averages on the CPU, whatever device it is compared with; else on a
              device; None: on either
    candidates  (estimate, place) → candidates at a place of its kind; none raises
    make_engine  what runs a candidate for an estimate
    point_kinds  the kinds of measured points its prices rest on; any one will do
    n_segments  how many it averages; 0: all that are asked for
    blocker   why nobody can take it yet; "" when one can
    """

    name: str
    label: WelchPeaksStrategy
    runs_on_host: bool | None
    candidates: Callable[[WelchEstimate, DevicePlace], Iterator[Candidate]]
    make_engine: Callable[[Candidate, WelchEstimate | None], WelchEngine]
    point_kinds: tuple[str, ...] = ()
    n_segments: int = 0
    blocker: str = ""
