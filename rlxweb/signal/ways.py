"""A strategy as one record: where it averages, its ways there, and what runs them.

A new one is a record in a file of its own (`on_host.py` and `on_device.py` are the
examples) and a row of the table in `offers.py`. Knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from rlxweb.cost.welch_model import WelchSize
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy
from rlxweb.devices.place import Place
from rlxweb.host.spec import WelchSpec
from rlxweb.signal.band_peaks import Band
from rlxweb.signal.engine import Engine
from rlxweb.signal.learned.transform import LearnedTransform
from rlxweb.signal.precision import Taken


@dataclass(frozen=True, slots=True)
class WelchEstimate:
    """What is to be run: the estimate, rows [n_rows, n_samples] and k peaks of each.

    k             0 asks for the spectrum itself
    mode          "bins" or "peaks", as `welch_peaks` has them
    min_segments  1 where the caller allows a single segment to stand for all
    strategy      "auto", or the name of the one to be used
    taken         how the samples came to be of the spec's dtype
    is_there      the samples lie on the device already
    band          bins that are wanted of the spectrum; None: all
    max_error     what the power may be off by, relative; 0: no more than by rounding
    model         a transform that was trained for such a job
    compiled      by code compiled for it: None where there is such already; True has it
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
    taken: Taken | None = None
    is_there: bool = False
    compiled: bool | None = None
    band: Band | None = None
    max_error: float = 0.0
    model: LearnedTransform | None = None

    @property
    def only_on_host(self) -> str:
        """Why no device computes it; "" when one does."""
        if self.spec.dtype == "float64":
            return self.wide.only_on_host
        return self.spec.only_on_host

    @property
    def wide(self) -> Taken:
        """How the samples came to be float64."""
        return self.taken or Taken(self.spec.dtype, self.spec.dtype)

    @property
    def size(self) -> WelchSize:
        """The job as the model sees it."""
        segments = self.spec.segments_of(self.n_samples)
        size = WelchSize(self.spec.nfft, segments, self.n_rows, self.k, self.n_samples)
        return size if self.band is None else replace(size, band=len(self.band))

    def averaging(self, segments: int) -> Self:
        """The same over the first so many segments; 0: as many as were asked for."""
        if not segments:
            return self
        return replace(self, spec=replace(self.spec, n_segments=segments))


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to estimate peaks.

    name      ours: "fast"
    label     RLX's
    on_host   averages on the CPU, whatever device it is compared with; else on a
              device; None: on either
    ways      (estimate, place) → candidates at a place of its kind; none raises
    engine    what runs a candidate for an estimate
    points    the kinds of measured points its prices rest on; any one will do
    segments  how many it averages; 0: all that are asked for
    blocker   why nobody can take it yet; "" when one can
    """

    name: str
    label: WelchPeaksStrategy
    on_host: bool | None
    ways: Callable[[WelchEstimate, Place], Iterator[Candidate]]
    engine: Callable[[Candidate, WelchEstimate | None], Engine]
    points: tuple[str, ...] = ()
    segments: int = 0
    blocker: str = ""
