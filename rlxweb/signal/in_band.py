"""The strategy "band": no more is computed than the bins that are wanted.

Two ways on the CPU and one on a device. "bins": one product of matrices, exact, for a
few bins. "decimated": the rows in fewer samples, within the error that was allowed, and
on any engine there is; never unasked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rlxweb.cost.welch_model import WelchSize
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.host.bins_product import products_per_sample, why_not
from rlxweb.host.decimated import decimation_kernels
from rlxweb.signal.band_engine import BINS, DecimatingEngine
from rlxweb.signal.band_plan import BandPlan, band_plans
from rlxweb.signal.check_price import check_terms
from rlxweb.signal.engine import Engine
from rlxweb.signal.on_device import FUSED
from rlxweb.signal.on_host import FAST, host_model
from rlxweb.signal.ways import Strategy, WelchEstimate

NAME: Final = "band"
_BINS: Final = "bins"
_STEP: Final = "1 of "
# Times in parts of what NumPy takes for segments of 1,024 that overlap by half, for as
# many samples; measured on one machine and corrected by runs on others.
_REFERENCE: Final = 1024
_A_PRODUCT: Final = 0.0076
_PRODUCTS: Final = 0.4
_A_TAP: Final = {True: 0.006, False: 0.009}
_AN_OUTPUT: Final = {True: 0.05, False: 0.55}
"""By whether the filter is compiled."""


def _ways(estimate: WelchEstimate, place: Place) -> Iterator[Candidate]:
    # Its last digits are its own: nothing of it unasked.
    is_asked = estimate.strategy == NAME
    if not is_asked and (estimate.band is None or not estimate.max_error):
        return
    if place.device is Device.CPU:
        yield _by_bins(estimate)
    blank = Candidate(place.device, place.label, NAME, adapter=place.adapter)
    blank = replace(blank, how="decimated")
    plans = band_plans(estimate.spec, estimate.band, estimate.max_error)
    if isinstance(plans, str):
        if estimate.max_error:  # of what nobody asked for nothing is said
            yield replace(blank, blocker=plans)
        return
    if estimate.is_there:
        yield replace(blank, blocker="the samples lie on a device already")
        return
    if place.device is not Device.CPU and estimate.spec.is_digital:
        yield replace(blank, blocker="integers are made fewer for the CPU only")
        return
    for plan in plans:
        yield from _in_fewer(estimate, place, plan)


def _samples_ns(estimate: WelchEstimate) -> float:
    """What NumPy takes for the reference estimate of as many samples."""
    hop = _REFERENCE // 2
    segments = max(1, estimate.n_samples // hop)
    size = WelchSize(_REFERENCE, segments, estimate.n_rows, 0, segments * hop)
    return host_model()[0].terms(size).total_ns


def _by_bins(estimate: WelchEstimate) -> Candidate:
    model, source = host_model()
    way = Candidate(Device.CPU, BINS.name, NAME, _BINS, source=source)
    if estimate.band is None:
        return replace(way, blocker="all bins are wanted: it needs an fmin or an fmax")
    reason = why_not(estimate.spec)
    if reason:
        return replace(way, blocker=reason)
    products = products_per_sample(estimate.spec, len(estimate.band))
    share = _PRODUCTS + _A_PRODUCT * products
    terms = Terms(launches=1, compute_ns=share * _samples_ns(estimate))
    return replace(way, terms=terms, error=model.error)


def _in_fewer(
    estimate: WelchEstimate, place: Place, plan: BandPlan
) -> Iterator[Candidate]:
    """What other strategies there offer for the estimate of fewer samples."""
    step = plan.filter.step
    few = replace(
        estimate,
        spec=plan.spec,
        n_samples=estimate.n_samples // step,
        k=0,
        strategy="auto",
    )
    before = _filter_terms(estimate, plan).plus(check_terms(estimate))
    inner = FAST if place.device is Device.CPU else FUSED
    for way in inner.ways(few, place):
        how = f"{_STEP}{step}, {way.how}"
        own = replace(way, strategy=NAME, how=how, off=plan.error)
        if own.terms is not None:
            own = replace(own, terms=own.terms.plus(before))
        yield own


def _filter_terms(estimate: WelchEstimate, plan: BandPlan) -> Terms:
    is_compiled = decimation_kernels.is_open
    taps, step = len(plan.filter.taps), plan.filter.step
    share = (_AN_OUTPUT[is_compiled] + _A_TAP[is_compiled] * taps) / step
    return Terms(launches=1, host_ns=share * _samples_ns(estimate))


def _engine(way: Candidate, estimate: WelchEstimate | None = None) -> Engine:
    if way.how == _BINS:
        return BINS
    # A candidate that was read back from a file may name any.
    told, _, how = way.how.removeprefix(_STEP).partition(", ")
    step = int(told) if told.isdecimal() else 2
    by = FAST if way.device is Device.CPU else FUSED
    limit = estimate.max_error if estimate else 0.0
    return DecimatingEngine(by.engine(replace(way, how=how), None), step, limit)


BAND = Strategy(NAME, WelchPeaksStrategy.BAND, on_host=None, ways=_ways, engine=_engine)
