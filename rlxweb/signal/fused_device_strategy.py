"""Strategy "fused": Welch averaging on a device.

"fused" searches the peaks there as well ("fused_op") or leaves that to the host, which
is given the bins of a band ("band_fft_host") or all ("block_fft_host").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any, get_args

from rlxweb.core.errors import DeviceError
from rlxweb.core.lru_cache import SMALL_TABLE_SAMPLES, lru_cache_if_small
from rlxweb.cost.decision import Candidate, Terms
from rlxweb.cost.welch_model import WelchModel, block_terms, integer_level_terms
from rlxweb.cost.welch_strategy_names import WelchPeaksStrategy
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.calibration.engine_calibration_lookup import (
    EngineCalibration,
    engine_calibration,
    fit_cached,
)
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.signal.cpu_welch_strategies import cpu_model
from rlxweb.signal.welch_engine import (
    GraphExecution,
    WelchGraphEngine,
    device_batch_rows,
    device_engine,
)
from rlxweb.signal.welch_strategy import WelchEstimate, WelchStrategy

POINT_KINDS = ("welch_fused",)
PEAKS_ON_HOST_REASON = "local maxima are found on the host, not on the device"
LEVEL_ON_HOST_REASON = (
    "for integer samples, the power of the mean is added on the host, not on the device"
)
# A size without a fused kernel is composed: more passes over memory, more launches.
_COMPOSED_SLOWDOWN, _COMPOSED_LAUNCHES = 4.0, 8
_fused_model = partial(WelchModel, how="welch_fused")


def _fused_candidates(
    estimate: WelchEstimate, place: DevicePlace
) -> Iterator[Candidate]:
    """Yield the candidates of the fused strategy at a place, priced or blocked."""
    template = Candidate(place.device, place.label, "fused", adapter=place.adapter)
    try:
        engine = pool.engine(place.device.label, place.adapter)
    except DeviceError as error:
        yield replace(template, blocker=str(error))
        return
    template = replace(template, engine=engine.name)
    prices = engine_calibration(place, POINT_KINDS)
    methods: tuple[GraphExecution, ...] = (
        "fused_op",
        "band_fft_host",
        "block_fft_host",
    )
    is_wanted = estimate.k > 0, estimate.band is not None, True
    for method in compress(methods, is_wanted):
        candidate = replace(template, how=method)
        reason = estimate.host_only_reason or _host_step_reason(estimate, method)
        if not reason and not isinstance(prices, str):
            yield _price_candidate(estimate, candidate, prices, engine)
            continue
        yield replace(candidate, blocker=reason or str(prices))


def _host_step_reason(estimate: WelchEstimate, method: str) -> str:
    """Return the reason why the host has to search the peaks or cut the band; "" if the
    device can.
    """
    if method == "block_fft_host":
        return ""
    if method == "fused_op" and estimate.mode == "peaks":
        return PEAKS_ON_HOST_REASON
    return LEVEL_ON_HOST_REASON if estimate.spec.has_level else ""


def _price_candidate(
    estimate: WelchEstimate,
    template: Candidate,
    prices: EngineCalibration,
    engine: Engine,
) -> Candidate:
    """Return the candidate with its predicted terms."""
    model = fit_cached(prices.record, _fused_model)
    is_native = has_native_kernel(engine, estimate, template.how == "fused_op")
    terms = _batched_terms(estimate, model, template.how, is_native)
    if estimate.is_on_device:
        terms = replace(terms, upload_ns=0.0)
    return replace(template, terms=terms, error=model.error, source=prices.source)


@lru_cache_if_small(512, lambda shape, spec, k: spec.nperseg <= SMALL_TABLE_SAMPLES)
def _fused_op_signature(
    shape: tuple[int, int], spec: WelchSpec, k: int
) -> tuple[Any, ...]:
    """Return the op of the estimate with its types and attributes, as `Target.native`
    takes them.
    """
    from rlxweb.ir.graph import node_signature  # none is made for the CPU
    from rlxweb.ops.welch.graph import welch_graph

    graph = welch_graph(shape, spec, k)
    return node_signature(graph, graph.node(graph.outputs[0]))


def has_native_kernel(engine: Engine, estimate: WelchEstimate, fused: bool) -> bool:
    """Tell whether the device has a native kernel for this size."""
    spec, n_samples = estimate.spec, estimate.n_samples
    shape = (min(estimate.n_rows, device_batch_rows(spec, n_samples)), n_samples)
    k = estimate.k if fused and estimate.band is None else 0
    return engine.target.native(*_fused_op_signature(shape, spec, k))


def _batched_terms(
    estimate: WelchEstimate, model: WelchModel, method: str, is_native: bool
) -> Terms:
    """Predict the time of all rows, sent in batches each of which is submitted and
    waited for.
    """
    step = device_batch_rows(estimate.spec, estimate.n_samples)
    n_full_batches, remaining_rows = divmod(estimate.n_rows, step)
    full_size = estimate.size
    fused = method == "fused_op"
    is_band_only = method != "block_fft_host"
    if not is_native:
        full_size = replace(full_size, launches=_COMPOSED_LAUNCHES)
    if estimate.band is not None and is_band_only:
        # Its bins are copied out, and searched by a kernel of its own.
        full_size = replace(full_size, launches=full_size.launches + 1 + fused)
    total = Terms()
    for rows, n_batches in ((step, n_full_batches), (remaining_rows, 1)):
        if not rows or not n_batches:
            continue
        size = replace(full_size, rows=rows)
        if fused:
            batch_terms = model.terms(size)
        elif estimate.k:
            batch_terms = block_terms(model, cpu_model()[0], size, is_band_only)
        else:
            batch_terms = model.terms(size if is_band_only else replace(size, band=0))
        if estimate.spec.is_digital:
            has_level = estimate.spec.has_level
            batch_terms = batch_terms.plus(
                integer_level_terms(cpu_model()[0], size, has_level)
            )
        total = total.plus(
            batch_terms if is_native else batch_terms.slowed(_COMPOSED_SLOWDOWN),
            n_batches,
        )
    return total


def _create_engine(
    candidate: Candidate, estimate: WelchEstimate | None = None
) -> WelchGraphEngine:
    """Return the device engine that runs a candidate."""
    # A candidate that was read back from a file may name any.
    method = next(
        (
            known_method
            for known_method in get_args(GraphExecution)
            if known_method == candidate.how
        ),
        "fused_op",
    )
    return device_engine(candidate.device, candidate.adapter, method)


_DEVICE_STRATEGY = partial(
    WelchStrategy, runs_on_host=False, make_engine=_create_engine
)
FUSED = _DEVICE_STRATEGY(
    "fused",
    WelchPeaksStrategy.RLX_COMPILED,
    candidates=_fused_candidates,
    point_kinds=POINT_KINDS,
)
