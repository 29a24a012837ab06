"""Rows that compiled code answers at once: looked over and computed in one walk.

Ordinary data passes every look that `ready_rows` and the floor of rounding take, so
nothing needs to be known of it beforehand: the kernel looks while a row lies in the
cache, and where any row does not pass its answer is dropped and the usual way is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.choose.chooser import Pick
from rlxweb.host.compiled import Kernel, wanted
from rlxweb.host.compiled_rows import (
    Limits,
    Samples,
    strongest_within,
)
from rlxweb.host.spec import WelchSpec
from rlxweb.host.strongest import Found
from rlxweb.host.welch_kernels import welch_kernels
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.rounding import rounding_shares
from rlxweb.signal.scaled import cleared

_PAUSE: Final = 16
"""Calls after one that did not pass, in which it is not tried."""


@dataclass(slots=True, eq=False)
class AtOnce:
    """What a pick of compiled code needs for that; it takes rows of the dtype."""

    kernel: Kernel
    spec: WelchSpec
    k: int
    limits: Limits
    dtype: np.dtype[Any]
    pause: int = 0

    def strongest(self, rows: NDArray[Any]) -> Found | None:
        """Bins and power (B, k) of rows (B, T); None where one needs a second look."""
        if self.pause:
            self.pause -= 1
            return None
        given = Samples.plain(rows)
        found = strongest_within(self.kernel, given, self.spec, self.k, self.limits)
        if found is None:
            self.pause = _PAUSE
        return found


@lru_of_small(128, lambda pick: pick.job.spec.nperseg <= SMALL)
def at_once(pick: Pick[WelchJob]) -> AtOnce | None:
    """What a pick needs to be answered at once; None where it is not compiled code's,
    of peaks that are more than strongest bins, or of integers.
    """
    job = pick.job
    is_plain = job.spec.dtype in ("float32", "float64") and job.mode == "bins"
    is_plain = is_plain and job.k > 0 and job.band is None
    if pick.candidate.how != "compiled" or not is_plain:
        return None
    spec = job.by(pick.candidate).spec
    about, plan = wanted(spec, job.k), cleared(spec, job.n_samples)
    kernel = None if isinstance(about, str) else welch_kernels.ready(about)
    # The rows are judged by all segments asked for, whatever a way averages.
    if kernel is None or plan.shift or spec is not job.spec:
        return None
    floor = rounding_shares(spec).highest / plan.used
    limits = Limits(plan.least, plan.most, floor, plan.used, job.n_samples)
    return AtOnce(kernel, spec, job.k, limits, np.dtype(spec.dtype))
