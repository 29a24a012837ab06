"""Test vectors of an exported Welch estimate: rows, and the result of `welch_peaks` for
them.

Ordinary rows with one of zeros among them, and rows so loud, and so soft, that a page
has to bring them into the middle of float32 first. Nothing that rounding alone decides
is asked of a page.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.device import Device
from rlxweb.core.errors import UsageError
from rlxweb.export.expected_outputs import compute_expected_outputs
from rlxweb.export.plan_test_vectors import PlanTestVector, StoredOutput
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ops.welch.cpu.spectrum import frequencies
from rlxweb.signal.exported_welch_estimate import ExportedWelchEstimate
from rlxweb.signal.row_preparation import PreparedRows, RowErrorContext, prepare_rows
from rlxweb.signal.spectrum_peaks import PeakSearch
from rlxweb.signal.welch_engine import NUMPY_ENGINE

# Of the rows so many bytes at most are stored; the others repeat them.
_MAX_STORED_BYTES, _MAX_ROWS, _EXTREME_ROWS = 256 << 10, 8, 3
_MAX_TRIES, _LINE_COUNT = 16, 6
_UNDECIDED_NOTE = (
    "the strongest bins are not compared, because their choice depends on rounding"
)


def build_test_vectors(estimate: ExportedWelchEstimate) -> list[PlanTestVector]:
    """Build the test vectors: ordinary rows, loud rows and soft rows."""
    max_rows = max(1, _MAX_STORED_BYTES // (4 * estimate.samples))
    count = min(estimate.rows, _MAX_ROWS, max_rows)
    x, has_clear_ranking = _test_rows(estimate, count)
    # Where the window itself leaves the range of float32, rows that bring it back.
    exponent_offset = int(np.clip(-estimate.range_check.shift // 2, -100, 100))
    x = np.ldexp(x, exponent_offset)
    few_rows = x[:_EXTREME_ROWS].copy()
    if count > _EXTREME_ROWS:
        x[_EXTREME_ROWS] = 0
    batches = [x]
    energy = (
        np.square(few_rows[:, : estimate.range_check.n_used], dtype=np.float64)
        .sum(1)
        .max()
    )
    for limit, factor in (
        (estimate.range_check.max_sum, 4.0),
        (estimate.range_check.min_sum, 0.25),
    ):
        if not estimate.range_check.shift and few_rows.nbytes <= _MAX_STORED_BYTES:
            exponent = np.frexp(np.sqrt(limit) * np.sqrt(factor / energy))[1]
            batches.append(np.ldexp(few_rows, exponent))
    cases = []
    for rows in batches:
        # What float32 cannot hold is refused in a page too.
        with suppress(UsageError):
            cases.append(_test_vector(estimate, rows, has_clear_ranking))
    return cases


def _test_rows(
    estimate: ExportedWelchEstimate, count: int
) -> tuple[NDArray[np.float32], bool]:
    """Return rows of a few lines and noise, and whether the ranking of their peaks is
    clear of rounding.
    """
    rng = np.random.default_rng(1)
    x, has_clear_ranking = np.empty((count, estimate.samples), np.float32), True
    for index in range(count):
        for _ in range(_MAX_TRIES):
            x[index] = _test_row(rng, estimate.samples)
            if not estimate.k or _has_clear_ranking(estimate, x[index : index + 1]):
                break
        else:
            has_clear_ranking = False
    return x, has_clear_ranking


def _test_row(rng: np.random.Generator, samples: int) -> NDArray[np.float64]:
    """Return a random row of a few sine lines and noise."""
    cycles = rng.uniform(0.01, 0.49, (_LINE_COUNT, 1)) * np.arange(samples)
    lines = rng.uniform(0.5, 2.0, (_LINE_COUNT, 1)) * np.sin(2 * np.pi * cycles)
    row: NDArray[np.float64] = lines.sum(0) + rng.normal(rng.normal(), 0.3, samples)
    return row


def _has_clear_ranking(
    estimate: ExportedWelchEstimate, row: NDArray[np.float32]
) -> bool:
    """Tell whether each of the k + 1 strongest powers is further from the next than
    their errors allow.
    """
    (reference,) = compute_expected_outputs(
        replace(estimate, output="power").graph(1), {"x": row}
    )
    power = np.sort(reference.array[0].astype(np.float64))[::-1][: estimate.k + 1]
    return bool(
        (-np.diff(power) > 2 * (reference.atol + reference.rtol * power[:-1])).all()
    )


def _test_vector(
    estimate: ExportedWelchEstimate, x: NDArray[np.float32], has_clear_ranking: bool
) -> PlanTestVector:
    """Return the results of `welch` and `welch_peaks` on the CPU, with the tolerances
    of a device.
    """
    caller = RowErrorContext("export_welch", (len(x),))
    ready = prepare_rows(x, estimate.spec, caller)
    raw_power = run_blocking(NUMPY_ENGINE.power(ready.x, ready.spec))
    power = ready.scaling.restore(raw_power, caller)
    rtol, atol = _device_tolerances(estimate, ready)
    hz = frequencies(estimate.spec, estimate.fs)
    outputs = {}
    if estimate.k:
        floor = ready.scaling_on(Device.CPU).rounding_floor()
        peaks = PeakSearch(estimate.k, "bins").in_spectrum(power, hz, floor)
        outputs["power"] = StoredOutput(peaks.power, rtol, atol, True)
        outputs["count"] = StoredOutput(peaks.count.astype(np.int32), repeats=True)
        if has_clear_ranking:
            outputs["bins"] = StoredOutput(peaks.bins.astype(np.int32), repeats=True)
            outputs["hz"] = StoredOutput(peaks.hz, repeats=True)
    if estimate.output != "peaks":
        power_names = (
            ("hz", "power") if estimate.output == "power" else ("freqs", "spectrum")
        )
        outputs[power_names[0]] = StoredOutput(hz)
        outputs[power_names[1]] = StoredOutput(power, rtol, atol, True)
    return PlanTestVector(
        {"x": x}, outputs, [] if has_clear_ranking else [_UNDECIDED_NOTE]
    )


def _device_tolerances(
    estimate: ExportedWelchEstimate, ready: PreparedRows
) -> tuple[float, float]:
    """Return the relative and absolute tolerance of a device."""
    rows = np.asarray(ready.x)
    (reference,) = compute_expected_outputs(
        replace(estimate, output="power").graph(len(rows)), {"x": rows}
    )
    shift, is_nonzero = ready.scaling.shift, ready.scaling.energy > 0
    exponent = (
        0 if shift is None or not is_nonzero.any() else int(shift[is_nonzero].max())
    )
    return reference.rtol, float(np.ldexp(reference.atol, exponent))
