"""Single-pass path of the compiled Welch kernels: rows are checked and computed in one
pass over memory.

Ordinary data passes every look that `ready_rows` and the floor of rounding take, so
nothing needs to be known of it beforehand: the kernel looks while a row lies in the
cache, and where any row does not pass its answer is dropped and the usual way is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.ops.welch.cpu.kernel import CompiledWelchKernel, welch_kernel_key
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.ops.welch.cpu.rows import (
    KernelSamples,
    RowCheckLimits,
    RowJob,
    has_long_rows,
    row_job,
    strongest_bins_within,
)
from rlxweb.ops.welch.cpu.strongest_bins import BinsAndPower
from rlxweb.select.chooser import DevicePick
from rlxweb.signal.rounding_floor import rounding_shares
from rlxweb.signal.row_preparation import energy_limits
from rlxweb.signal.welch_candidates import WelchJob

_SKIPPED_CALLS: Final = 16
"""Number of calls that skip the single pass after one that did not pass the checks."""


@dataclass(slots=True, eq=False)
class SinglePassKernel:
    """Compiled kernel and limits with which a pick answers rows of one dtype in a
    single pass.
    """

    kernel: CompiledWelchKernel
    job: RowJob
    k: int
    limits: RowCheckLimits
    dtype: np.dtype[Any]
    calls_to_skip: int = 0

    def strongest_bins(self, rows: NDArray[Any]) -> BinsAndPower | None:
        """Return bins and power (B, k) of rows (B, T); None where a row needs the full
        checks.
        """
        if self.calls_to_skip:
            self.calls_to_skip -= 1
            return None
        samples = KernelSamples.from_float_rows(rows)
        bins_and_power = strongest_bins_within(
            self.kernel, samples, self.job, self.k, self.limits
        )
        if bins_and_power is None:
            self.calls_to_skip = _SKIPPED_CALLS
        return bins_and_power


@lru_cache_if_small(128, lambda pick: pick.job.spec.nperseg <= SMALL_TABLE_SAMPLES)
def single_pass_kernel(pick: DevicePick[WelchJob]) -> SinglePassKernel | None:
    """Return the single-pass kernel of a pick; None where the pick does not run
    compiled code, searches for more than the strongest bins, or has integer samples.
    """
    job = pick.job
    is_supported = job.spec.dtype in ("float32", "float64") and job.mode == "bins"
    is_supported = is_supported and job.k > 0 and job.band is None
    if pick.candidate.how != "compiled" or not is_supported:
        return None
    spec = job.job_for_candidate(pick.candidate).spec
    kernel_key, plan = welch_kernel_key(spec, job.k), energy_limits(spec, job.n_samples)
    kernel = (
        None if isinstance(kernel_key, str) else welch_kernels.get_kernel(kernel_key)
    )
    # The rows are judged by all segments asked for, whatever a way averages.
    if kernel is None or plan.shift or spec is not job.spec:
        return None
    if kernel.find_peaks is None or has_long_rows(job.n_samples, spec):
        return None
    floor = rounding_shares(spec).max_line / plan.n_used
    limits = RowCheckLimits(
        plan.min_sum, plan.max_sum, floor, plan.n_used, job.n_samples
    )
    dtype = np.dtype(spec.dtype)
    rows = row_job(kernel, dtype, job.n_samples, spec, job.k)
    return SinglePassKernel(kernel, rows, job.k, limits, dtype)
