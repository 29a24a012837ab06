"""Export of a Welch estimate as a folder that a web page runs without Python:
`export_welch`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from rlxweb.core.argument_validation import (
    check_choice,
    coerce_float,
    coerce_integer,
    suggest_misspelled_options,
)
from rlxweb.core.errors import Unsupported, UsageError
from rlxweb.core.function_options import Option, declare_options, options_of
from rlxweb.core.limits import Limits
from rlxweb.core.message_text import Advice
from rlxweb.export.atomic_folder import coerce_folder
from rlxweb.export.npm_package import NpmPackage, coerce_package
from rlxweb.export.web_export import (
    ExportJob,
    ExportProgress,
    ExportSummary,
    ExportTarget,
    write_export,
)
from rlxweb.signal.exported_welch_estimate import ExportedWelchEstimate, Output
from rlxweb.signal.row_preparation import energy_limits
from rlxweb.signal.spectrum_peaks import PeakSearch
from rlxweb.signal.welch_peaks import welch_peaks
from rlxweb.signal.welch_request import (
    DETREND_FROM_PRESET,
    SCALINGS,
    WelchRequest,
    welch_errors_named,
)
from rlxweb.signal.welch_test_vectors import build_test_vectors

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rlxweb.signal.windows import WindowLike

CONTEXT = "export_welch"


_WELCH_PEAKS = options_of(welch_peaks)


@suggest_misspelled_options
@declare_options(
    rows=Option("Rows per call."),
    samples=Option("Samples per row."),
    fs=Option("Sampling rate in Hz."),
    nperseg=Option("Samples per segment [256]."),
    noverlap=_WELCH_PEAKS["noverlap"],
    nsegments=_WELCH_PEAKS["nsegments"],
    nfft=Option("Length of the transform [nperseg]."),
    k=_WELCH_PEAKS["k"],
    output=Option("What a call returns [peaks].", choices=get_args(Output)),
    preset=_WELCH_PEAKS["preset"],
    mode=_WELCH_PEAKS["mode"],
    window=_WELCH_PEAKS["window"],
    detrend=_WELCH_PEAKS["detrend"],
    scaling=Option(
        "Scaling of the power; default: from the preset.",
        choices=SCALINGS,
    ),
)
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
    detrend: str | bool | None = DETREND_FROM_PRESET,
    scaling: str | None = None,
    preset: str = "rlx",
    mode: str = "bins",
    name: str = "welch",
    to: ExportTarget = "web",
    vectors: bool = True,
    limits: Limits | None = None,
    package: NpmPackage | str | None = None,
    force: bool = False,
    tell: ExportProgress | None = None,
) -> ExportSummary:
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
    with welch_errors_named(CONTEXT):
        request = WelchRequest(
            fs=coerce_float("fs", fs, CONTEXT),
            nperseg=nperseg,
            noverlap=noverlap,
            nfft=nfft,
            window=window,
            detrend=detrend,
            scaling=scaling,
            nsegments=nsegments,
            preset=preset,
        )
    check_choice("output", output, ("peaks", "power", "both"), CONTEXT)
    if mode != "bins":
        raise Unsupported(
            CONTEXT,
            f"mode {mode!r} cannot be exported, because Python code finds the local "
            "maxima",
            "an exported page computes the strongest bins or the full power spectrum",
            Advice(
                "use {}; to find local maxima in your own JavaScript, also use {}",
                mode="bins",
                output="power",
            ),
        )
    estimate = _plan_estimate(request, rows, samples, k, output)
    cases = build_test_vectors(estimate) if vectors else []
    return write_export(
        ExportJob(
            estimate.graph(estimate.rows),
            {},
            coerce_folder(folder, CONTEXT),
            name,
            to,
            estimate.output_names,
            cases,
            limits,
            force=force,
            make_welch_entry=estimate.plan_entry,
            package=coerce_package(package, CONTEXT),
        ),
        tell,
    )


def _plan_estimate(
    request: WelchRequest, rows: int, samples: int, k: int | None, output: Output
) -> ExportedWelchEstimate:
    """Check the arguments and return the estimate that is exported; raise
    UsageError.
    """
    n_rows = coerce_integer("rows", rows, CONTEXT)
    n_samples = coerce_integer("samples", samples, CONTEXT)
    for label, peak_count in (("rows", n_rows), ("samples", n_samples)):
        if peak_count < 1:
            raise UsageError(CONTEXT, f"{label} is {peak_count}", "must be at least 1")
    with welch_errors_named(CONTEXT):
        spec = request.spec(n_samples, np.float32)
    if not np.isfinite(request.fs * (spec.n_freqs - 1.0)):
        rule = "all frequencies must be within the range of float64"
        raise UsageError(CONTEXT, f"fs is {request.fs:g}", rule)
    peak_count = 0
    if output != "power":
        search = PeakSearch(min(16, spec.n_freqs) if k is None else k, "bins")
        peak_count = search.checked(CONTEXT, spec.n_freqs).k
    energy_range = energy_limits(spec, n_samples)
    return ExportedWelchEstimate(
        spec, energy_range, n_rows, n_samples, request.fs, peak_count, output
    )
