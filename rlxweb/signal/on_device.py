"""The strategy that averages on a device, "fused".

"fused" searches the peaks there as well ("fused_op") or leaves that to the host, which
is given the bins of a band ("band_fft_host") or all ("block_fft_host").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any, get_args

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.calibration.known import Priced, fitted, priced
from rlxweb.cost.welch_model import WelchModel, block_terms, level_terms
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy
from rlxweb.decision.terms import Terms
from rlxweb.devices.place import Place
from rlxweb.errors import DeviceError
from rlxweb.host.spec import WelchSpec
from rlxweb.kept import SMALL, lru_of_small
from rlxweb.signal.engine import GraphEngine, How, batch_rows, device_engine
from rlxweb.signal.on_host import host_model
from rlxweb.signal.ways import Strategy, WelchEstimate

POINTS = ("welch_fused",)
PEAKS_ON_HOST = "local maxima are searched on the host"
LEVEL_ON_HOST = "the level of integers belongs to the power, and the host adds it"
# A size without a fused kernel is composed: more passes over memory, more launches.
_COMPOSED, _COMPOSED_LAUNCHES = 4.0, 8
_model = partial(WelchModel, how="welch_fused")


def _fused(estimate: WelchEstimate, place: Place) -> Iterator[Candidate]:
    blank = Candidate(place.device, place.label, "fused", adapter=place.adapter)
    try:
        backend = pool.backend(place.device.label, place.adapter)
    except DeviceError as error:
        yield replace(blank, blocker=str(error))
        return
    blank = replace(blank, engine=backend.name)
    have = priced(place, POINTS)
    hows: tuple[How, ...] = ("fused_op", "band_fft_host", "block_fft_host")
    asked = estimate.k > 0, estimate.band is not None, True
    for how in compress(hows, asked):
        one = replace(blank, how=how)
        reason = estimate.only_on_host or _left_to_the_host(estimate, how)
        if not reason and not isinstance(have, str):
            yield _priced_way(estimate, one, have, backend)
            continue
        yield replace(one, blocker=reason or str(have))


def _left_to_the_host(estimate: WelchEstimate, how: str) -> str:
    """Why the device does not search or cut; "" where it may."""
    if how == "block_fft_host":
        return ""
    if how == "fused_op" and estimate.mode == "peaks":
        return PEAKS_ON_HOST
    return LEVEL_ON_HOST if estimate.spec.has_level else ""


def _priced_way(
    estimate: WelchEstimate, blank: Candidate, have: Priced, backend: Backend
) -> Candidate:
    model = fitted(have.record, _model)
    is_native = fits(backend, estimate, blank.how == "fused_op")
    terms = _in_batches(estimate, model, blank.how, is_native)
    if estimate.is_there:
        terms = replace(terms, upload_ns=0.0)
    return replace(blank, terms=terms, error=model.error, source=have.source)


@lru_of_small(512, lambda shape, spec, k: spec.nperseg <= SMALL)
def _op_of(shape: tuple[int, int], spec: WelchSpec, k: int) -> tuple[Any, ...]:
    """The op that computes it with its types and attributes, as a target is asked."""
    from rlxweb.cost.graph_work import asked_of  # none is made for the CPU
    from rlxweb.host.welch_graph import welch_graph

    graph = welch_graph(shape, spec, k)
    return asked_of(graph, graph.node(graph.outputs[0]))


def fits(backend: Backend, estimate: WelchEstimate, fused: bool) -> bool:
    """Has the device a kernel of its own for this size?"""
    spec, n_samples = estimate.spec, estimate.n_samples
    shape = (min(estimate.n_rows, batch_rows(spec, n_samples)), n_samples)
    k = estimate.k if fused and estimate.band is None else 0
    return backend.target.native(*_op_of(shape, spec, k))


def _in_batches(
    estimate: WelchEstimate, model: WelchModel, how: str, is_native: bool
) -> Terms:
    """The rows go up in batches; each is submitted and waited for."""
    step = batch_rows(estimate.spec, estimate.n_samples)
    full, rest = divmod(estimate.n_rows, step)
    whole, fused, is_cut = estimate.size, how == "fused_op", how != "block_fft_host"
    if not is_native:
        whole = replace(whole, launches=_COMPOSED_LAUNCHES)
    if estimate.band is not None and is_cut:
        # Its bins are copied out, and searched by a kernel of its own.
        whole = replace(whole, launches=whole.launches + 1 + fused)
    total = Terms()
    for rows, times in ((step, full), (rest, 1)):
        if not rows or not times:
            continue
        size = replace(whole, rows=rows)
        if fused:
            one = model.terms(size)
        elif estimate.k:
            one = block_terms(model, host_model()[0], size, is_cut)
        else:
            one = model.terms(size if is_cut else replace(size, band=0))
        if estimate.spec.is_digital:
            has_level = estimate.spec.has_level
            one = one.plus(level_terms(host_model()[0], size, has_level))
        total = total.plus(one if is_native else one.slowed(_COMPOSED), times)
    return total


def _engine(candidate: Candidate, estimate: WelchEstimate | None = None) -> GraphEngine:
    # A candidate that was read back from a file may name any.
    how = next((one for one in get_args(How) if one == candidate.how), "fused_op")
    return device_engine(candidate.device, candidate.adapter, how)


_DEVICE = partial(Strategy, on_host=False, engine=_engine)
FUSED = _DEVICE("fused", WelchPeaksStrategy.RLX_COMPILED, ways=_fused, points=POINTS)
