"""Strategies that average on the CPU: "fast" over all segments, and "ultra" over one
segment.

Each has two ways: NumPy, which is always there, and compiled code, where the extra
`fast` is installed and a kernel is ready; until then its row says what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rlxweb.core.device import Device
from rlxweb.cost.decision import Candidate, Terms
from rlxweb.cost.welch_model import WelchModel
from rlxweb.cost.welch_strategy_names import WelchPeaksStrategy
from rlxweb.ops.welch.cpu.kernel_cache import welch_kernels
from rlxweb.select.calibration.engine_calibration_lookup import (
    cpu_calibration,
    fit_cached,
)
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.compiled_welch_engine import COMPILED_ENGINE, missing_kernel_reason
from rlxweb.signal.welch_engine import NUMPY_ENGINE, WelchEngine
from rlxweb.signal.welch_strategy import WelchEstimate, WelchStrategy

POINT_KINDS = ("welch_host",)
COMPILED_POINT_KINDS = ("welch_compiled",)
SINGLE_SEGMENT_REASON = (
    "this strategy averages only 1 segment, which requires min_segments=1"
)
# NumPy's time against float32 samples, where a record has no points of its own.
_DTYPE_SLOWDOWN = {
    "float32": 1.0,
    "int24": 1.4,
    "float64": 1.4,
    "complex64": 2.0,
    "complex128": 2.8,
}
# Compiled code computes all of them alike; doubles are twice the bytes.
_COMPILED_DTYPE_SLOWDOWN = {"float32": 1.0, "int24": 1.1, "float64": 1.2}
# Compiled code's time against NumPy's, where it was not measured.
_COMPILED_TIME_RATIO = 0.3
_numpy_model = partial(WelchModel, how="welch_host")
_compiled_model = partial(WelchModel, how="welch_compiled")


def cpu_model() -> tuple[WelchModel, str]:
    """Return the CPU's Welch cost model and the source of its prices."""
    prices = cpu_calibration(POINT_KINDS)
    return fit_cached(prices.record, _numpy_model), prices.source


def _cpu_candidates(
    name: str, segments: int, estimate: WelchEstimate, place: DevicePlace
) -> Iterator[Candidate]:
    """Yield the CPU candidates of a strategy: NumPy, and compiled code where it is
    enabled.
    """
    model, source = cpu_model()
    # Naming the strategy allows its single segment.
    is_allowed = segments in (0, estimate.min_segments) or estimate.strategy == name
    blocker = "" if is_allowed else SINGLE_SEGMENT_REASON
    averaged = estimate.with_n_segments(segments)
    terms = model.terms(averaged.size).slowed(_DTYPE_SLOWDOWN[averaged.spec.dtype])

    def make_candidate(
        engine: str, method: str, terms: Terms, blocker: str
    ) -> Candidate:
        return Candidate(
            Device.CPU,
            engine,
            name,
            method,
            terms,
            error=model.error,
            source=source,
            blocker=blocker,
        )

    yield make_candidate(NUMPY_ENGINE.name, "host", terms, blocker)
    if welch_kernels.is_enabled:
        terms = compiled_terms(averaged) or terms.slowed(_COMPILED_TIME_RATIO)
        blocker = blocker or missing_kernel_reason(averaged)
        yield make_candidate(COMPILED_ENGINE.name, "compiled", terms, blocker)


def compiled_terms(estimate: WelchEstimate) -> Terms | None:
    """Return the predicted time of compiled code; None if it was not measured."""
    record = cpu_calibration(COMPILED_POINT_KINDS).record
    if not record.points_of_kind(COMPILED_POINT_KINDS[0]):
        return None
    model = fit_cached(record, _compiled_model)
    slowdown = _COMPILED_DTYPE_SLOWDOWN.get(estimate.spec.dtype, 1.0)
    return model.terms(estimate.size).slowed(slowdown)


def _candidate_engine(
    candidate: Candidate, estimate: WelchEstimate | None = None
) -> WelchEngine:
    """Return the engine that runs a CPU candidate."""
    return COMPILED_ENGINE if candidate.how == "compiled" else NUMPY_ENGINE


def _cpu_strategy(name: str, label: WelchPeaksStrategy, segments: int) -> WelchStrategy:
    """Build the record of a CPU strategy."""
    candidates = partial(_cpu_candidates, name, segments)
    return WelchStrategy(
        name, label, True, candidates, _candidate_engine, POINT_KINDS, segments
    )


FAST = _cpu_strategy("fast", WelchPeaksStrategy.FAST_STREAMING, 0)
ULTRA = _cpu_strategy("ultra", WelchPeaksStrategy.ULTRA_FAST, 1)
