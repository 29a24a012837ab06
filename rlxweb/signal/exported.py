"""`export_welch`: a Welch estimate as a folder that a page runs without Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlxweb.advice import Advice
from rlxweb.arguments import helpful, number, one_of, whole
from rlxweb.errors import Unsupported, UsageError
from rlxweb.export.folder import as_folder
from rlxweb.export.package import Package, as_package
from rlxweb.export.written import Exported, Job, Tell, To, write_export
from rlxweb.limits import Limits
from rlxweb.signal.page_cases import cases_of
from rlxweb.signal.page_estimate import Output, PageEstimate
from rlxweb.signal.peaks_asked import checked_k
from rlxweb.signal.request import OF_PRESET, WelchRequest
from rlxweb.signal.scaled import cleared

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.signal.windows import WindowLike

DOING = "export_welch"


@helpful
def export_welch(
    folder: str | Path,
    rows: int,
    samples: int,
    fs: float = 1.0,
    nperseg: int = 256,
    k: int | None = None,
    *,
    output: Output = "peaks",
    noverlap: int | None = None,
    nsegments: int | None = None,
    nfft: int | None = None,
    window: WindowLike | ArrayLike | None = None,
    detrend: str | bool | None = OF_PRESET,
    scaling: str | None = None,
    preset: str = "rlx",
    mode: str = "bins",
    name: str = "welch",
    to: To = "web",
    vectors: bool = True,
    limits: Limits | None = None,
    package: Package | str | None = None,
    force: bool = False,
    tell: Tell | None = None,
) -> Exported:
    """Write a Welch estimate of rows x samples of float32 for a page without Python.

    A page then has `const { hz, power } = await run({ x })`, the numbers of
    `welch_peaks` on a device.

    folder   is made, whole or not at all
    k        peaks of a row; None: 16, or all bins where there are fewer
    output   "peaks": the k strongest bins of each row; "power": the whole spectrum;
             "both"
    name     of the module, NAME.js
    to       "web", or "npm" for a package, called as `package` says
    vectors  with cases by which a page checks itself
    limits   what the plan may use of a device; None: WebGPU's defaults
    force    replace an earlier export in the folder
    tell     hears (what, bytes done, bytes in all)
    The rest as `welch_peaks` and `welch` have it.

    Errors   UsageError, LimitExceeded, NotWritten; Unsupported for mode "peaks": local
             maxima are searched by the host.
    """
    given = WelchRequest(
        *(number("fs", fs, DOING), nperseg, noverlap, nfft, window, detrend),
        *(True, scaling, "mean", nsegments, preset),
    )
    one_of("output", output, ("peaks", "power", "both"), DOING)
    if mode != "bins":
        raise Unsupported(
            DOING,
            f"mode {mode!r} is not exported: local maxima are searched by the host",
            "a page has the strongest bins, or the whole power",
            Advice("use {}, or {} and search there", mode="bins", output="power"),
        )
    estimate = _settled(given, rows, samples, k, output)
    cases = cases_of(estimate) if vectors else []
    return write_export(
        Job(
            estimate.graph(estimate.rows),
            {},
            as_folder(folder, DOING),
            name,
            to,
            estimate.raw,
            cases,
            limits,
            force=force,
            welch=estimate.record,
            package=as_package(package, DOING),
        ),
        tell,
    )


def _settled(
    given: WelchRequest, rows: int, samples: int, k: int | None, output: Output
) -> PageEstimate:
    """Errors  UsageError for what is outside its domain."""
    n_rows, n_samples = whole("rows", rows, DOING), whole("samples", samples, DOING)
    for what, count in (("rows", n_rows), ("samples", n_samples)):
        if count < 1:
            raise UsageError(DOING, f"{what} is {count}", "it must be at least 1")
    spec = given.spec(n_samples, np.float32)
    if not np.isfinite(given.fs * (spec.n_freqs - 1.0)):
        rule = "no frequency may be past the range of doubles"
        raise UsageError(DOING, f"fs is {given.fs:g}", rule)
    count = min(16, spec.n_freqs) if k is None else k
    count = 0 if output == "power" else checked_k(count, spec.n_freqs, "bins")
    plain = cleared(spec, n_samples)
    return PageEstimate(spec, plain, n_rows, n_samples, given.fs, count, output)
