"""Strategy "band": compute only the requested bins.

Two ways on the CPU and one on a device. "bins": one product of matrices, exact, for a
few bins. "decimated": the rows in fewer samples, within the error that was allowed, and
on any engine there is; never unasked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rlxweb.core.device import Device
from rlxweb.cost.decision import Candidate, Terms
from rlxweb.cost.welch_model import WelchSize
from rlxweb.cost.welch_strategy_names import WelchPeaksStrategy
from rlxweb.ops.welch.cpu.decimate_rows import decimation_kernels
from rlxweb.ops.welch.cpu.matmul_bin_power import (
    multiplications_per_sample,
    unsupported_reason,
)
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.accuracy_check_cost import accuracy_check_terms
from rlxweb.signal.band_decimation_plan import BandDecimationPlan, band_decimation_plans
from rlxweb.signal.band_engine import BINS_ENGINE, DecimatingEngine
from rlxweb.signal.cpu_welch_strategies import FAST, cpu_model
from rlxweb.signal.fused_device_strategy import FUSED
from rlxweb.signal.welch_engine import WelchEngine
from rlxweb.signal.welch_strategy import WelchEstimate, WelchStrategy

STRATEGY_NAME: Final = "band"
_BINS_EXECUTION: Final = "bins"
_STEP_PREFIX: Final = "1 of "
# Times in parts of what NumPy takes for segments of 1,024 that overlap by half, for as
# many samples; measured on one machine and corrected by runs on others.
_REFERENCE_NPERSEG: Final = 1024
_COST_PER_PRODUCT: Final = 0.0076
_COST_OF_PRODUCTS: Final = 0.4
_COST_PER_TAP: Final = {True: 0.006, False: 0.009}
_COST_PER_OUTPUT: Final = {True: 0.05, False: 0.55}
"""Costs by whether the filter is compiled."""


def _candidates(estimate: WelchEstimate, place: DevicePlace) -> Iterator[Candidate]:
    """Yield the candidates of the strategy at a place."""
    # Its last digits are its own: nothing of it unasked.
    is_requested = estimate.strategy == STRATEGY_NAME
    if not is_requested and (estimate.band is None or not estimate.max_error):
        return
    if place.device is Device.CPU:
        yield _bins_candidate(estimate)
    unpriced = Candidate(
        place.device, place.label, STRATEGY_NAME, adapter=place.adapter
    )
    unpriced = replace(unpriced, how="decimated")
    plans = band_decimation_plans(estimate.spec, estimate.band, estimate.max_error)
    if isinstance(plans, str):
        if estimate.max_error:  # of what nobody asked for nothing is said
            yield replace(unpriced, blocker=plans)
        return
    if estimate.is_on_device:
        yield replace(
            unpriced, blocker="the samples are on a device, but must be in host memory"
        )
        return
    if place.device is not Device.CPU and estimate.spec.is_digital:
        yield replace(unpriced, blocker="only the CPU can decimate integer samples")
        return
    for plan in plans:
        yield from _decimated_candidates(estimate, place, plan)


def _reference_ns(estimate: WelchEstimate) -> float:
    """Return the time that NumPy takes for the reference estimate of as many
    samples.
    """
    hop = _REFERENCE_NPERSEG // 2
    segments = max(1, estimate.n_samples // hop)
    size = WelchSize(_REFERENCE_NPERSEG, segments, estimate.n_rows, 0, segments * hop)
    return cpu_model()[0].terms(size).total_ns


def _bins_candidate(estimate: WelchEstimate) -> Candidate:
    """Return the candidate that computes the bins by one matrix product on the CPU."""
    model, source = cpu_model()
    candidate = Candidate(
        Device.CPU, BINS_ENGINE.name, STRATEGY_NAME, _BINS_EXECUTION, source=source
    )
    if estimate.band is None:
        return replace(
            candidate,
            blocker="computing individual bins requires fmin or fmax, but all bins are "
            "requested",
        )
    reason = unsupported_reason(estimate.spec)
    if reason:
        return replace(candidate, blocker=reason)
    products = multiplications_per_sample(estimate.spec, len(estimate.band))
    share = _COST_OF_PRODUCTS + _COST_PER_PRODUCT * products
    terms = Terms(launches=1, compute_ns=share * _reference_ns(estimate))
    return replace(candidate, terms=terms, error=model.error)


def _decimated_candidates(
    estimate: WelchEstimate, place: DevicePlace, plan: BandDecimationPlan
) -> Iterator[Candidate]:
    """Yield the candidates of other strategies at a place for the estimate from
    decimated samples.
    """
    step = plan.filter.step
    decimated_estimate = replace(
        estimate,
        spec=plan.spec,
        n_samples=estimate.n_samples // step,
        k=0,
        strategy="auto",
    )
    extra_terms = _filter_terms(estimate, plan).plus(accuracy_check_terms(estimate))
    inner_strategy = FAST if place.device is Device.CPU else FUSED
    for candidate in inner_strategy.candidates(decimated_estimate, place):
        execution = f"{_STEP_PREFIX}{step}, {candidate.how}"
        decimated_candidate = replace(
            candidate, strategy=STRATEGY_NAME, how=execution, off=plan.error
        )
        if decimated_candidate.terms is not None:
            decimated_candidate = replace(
                decimated_candidate, terms=decimated_candidate.terms.plus(extra_terms)
            )
        yield decimated_candidate


def _filter_terms(estimate: WelchEstimate, plan: BandDecimationPlan) -> Terms:
    """Return the cost of filtering and decimating the rows."""
    is_compiled = decimation_kernels.is_enabled
    taps, step = len(plan.filter.taps), plan.filter.step
    share = (_COST_PER_OUTPUT[is_compiled] + _COST_PER_TAP[is_compiled] * taps) / step
    return Terms(launches=1, host_ns=share * _reference_ns(estimate))


def _engine_of_candidate(
    candidate: Candidate, estimate: WelchEstimate | None = None
) -> WelchEngine:
    """Return the engine that runs a candidate of the strategy."""
    if candidate.how == _BINS_EXECUTION:
        return BINS_ENGINE
    # A candidate that was read back from a file may name any.
    step_text, _, inner_execution = candidate.how.removeprefix(_STEP_PREFIX).partition(
        ", "
    )
    step = int(step_text) if step_text.isdecimal() else 2
    inner_strategy = FAST if candidate.device is Device.CPU else FUSED
    limit = estimate.max_error if estimate else 0.0
    return DecimatingEngine(
        inner_strategy.make_engine(replace(candidate, how=inner_execution), None),
        step,
        limit,
    )


BAND_STRATEGY = WelchStrategy(
    STRATEGY_NAME,
    WelchPeaksStrategy.BAND,
    runs_on_host=None,
    candidates=_candidates,
    make_engine=_engine_of_candidate,
)
