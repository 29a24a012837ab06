"""The ways to run one Welch job and what each would cost on calibrated engines.

Every place of the machine offers its strategies; each becomes a Candidate with its
predicted terms, or with the reason why it cannot be taken. Which one is taken is
`picker.py`'s business. RLX's own formulas are in `seed_costs.py`; nothing is mixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.calibration.corrections import Bucket, corrections, octave
from rlxweb.choose.priced import Priced, priced
from rlxweb.cost.assumed import assumed_cpu
from rlxweb.cost.record import Calibration
from rlxweb.cost.welch_model import How, WelchModel, WelchSize, block_terms
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.terms import TIMES, Terms
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import DeviceError
from rlxweb.gpu.drive import in_a_tab
from rlxweb.ir.op import TensorType, registry
from rlxweb.signal.engine import NUMPY, WelchJob, batch_rows, refusal, welch_graph

NO_MODEL = "it needs a trained model of the transform, and rlxweb has none yet"
NOT_ONE_SEGMENT = "it averages 1 segment only; min_segments=1 allows that"
PEAKS_ON_HOST = "local maxima are searched on the host"

# NumPy's time against float32 samples, where a record has no points of its own.
_WIDER = {"float32": 1.0, "float64": 1.4, "complex64": 2.0, "complex128": 2.8}
# A size without a fused kernel is composed: more passes over memory, more launches.
_COMPOSED, _COMPOSED_LAUNCHES = 4.0, 8


def points_for(place: Place) -> str:
    """The kind of points a place's prices rest on."""
    return "welch_host" if place.device is Device.CPU else "welch_fused"


_models: dict[tuple[int, str], WelchModel] = {}


def model_of(record: Calibration, how: How) -> WelchModel:
    """The fitted model, kept as long as its record is."""
    key = (id(record), how)
    found = _models.get(key)
    if found is None or found.record is not record:
        if len(_models) > 64:
            _models.clear()
        found = _models[key] = WelchModel(record, how)
    return found


def candidates_at(job: WelchJob, places: Sequence[Place]) -> Iterator[Candidate]:
    """Every strategy at every place, unranked."""
    for place in places:
        if place.device is Device.CPU:
            yield from _on_cpu(job, place)
        else:
            yield from _on_device(job, place)


def bucket_of(job: WelchJob, candidate: Candidate) -> Bucket:
    """Where observed runs of jobs like this one are kept."""
    size = size_of(job)
    return (
        candidate.engine,
        f"welch {candidate.strategy} {candidate.how}".strip(),
        octave(size.n),
        octave(size.rows),
        octave(size.segments),
        octave(size.k + 1),
        job.spec.dtype,
    )


def size_of(job: WelchJob) -> WelchSize:
    """The job as the model sees it."""
    spec = job.spec
    segments = spec.segments_of(job.n_samples)
    return WelchSize(spec.nfft, segments, job.n_rows, job.k, job.n_samples)


def one_segment(job: WelchJob) -> WelchJob:
    """The job with the first segment alone: another statistic of the same signal."""
    return replace(job, spec=replace(job.spec, n_segments=1))


def _corrected(job: WelchJob, candidate: Candidate) -> Candidate:
    factor = corrections.factor(bucket_of(job, candidate))
    return candidate if factor == 1.0 else replace(candidate, correction=factor)


# --- the CPU ----------------------------------------------------------------------


def _on_cpu(job: WelchJob, place: Place) -> Iterator[Candidate]:
    have = priced(place, points_for(place))
    if isinstance(have, str):
        return
    model = model_of(have.record, "welch_host")
    fast = Candidate(
        place.device,
        NUMPY.name,
        "fast",
        "host",
        terms=_host_terms(model, job),
        error=model.error,
        source=have.source,
    )
    yield _corrected(job, fast)
    single = one_segment(job)
    allowed = job.min_segments == 1
    ultra = replace(
        fast,
        strategy="ultra",
        terms=_host_terms(model, single),
        blocker="" if allowed else NOT_ONE_SEGMENT,
    )
    yield _corrected(single, ultra)


def _host_terms(model: WelchModel, job: WelchJob) -> Terms:
    terms = model.terms(size_of(job))
    return scaled(terms, _WIDER[job.spec.dtype])


def scaled(terms: Terms, factor: float) -> Terms:
    """Compute and traffic times a factor."""
    if factor == 1.0:
        return terms
    return replace(
        terms,
        compute_ns=terms.compute_ns * factor,
        traffic_ns=terms.traffic_ns * factor,
    )


# --- a device ---------------------------------------------------------------------


def _on_device(job: WelchJob, place: Place) -> Iterator[Candidate]:
    try:
        backend: Any = pool.backend(place.device.label, place.adapter)
    except DeviceError as error:
        blocked = Candidate(
            place.device,
            place.label,
            "fused",
            blocker=str(error),
            adapter=place.adapter,
        )
        yield blocked
        return
    blank = Candidate(place.device, backend.name, "fused", adapter=place.adapter)
    have = priced(place, points_for(place))
    reason = refusal(job.spec) or (have if isinstance(have, str) else "")
    ways = ("fused_op", "block_fft_host") if job.k else ("block_fft_host",)
    for how in ways:
        one = replace(blank, how=how, blocker=reason)
        if not reason and not isinstance(have, str):
            one = _priced_way(job, one, have, backend)
        yield one
    if job.k:
        yield replace(blank, strategy="learned", blocker=NO_MODEL)


def _priced_way(
    job: WelchJob, blank: Candidate, have: Priced, backend: Any
) -> Candidate:
    fused = blank.how == "fused_op"
    if fused and job.mode == "peaks":
        return replace(blank, blocker=PEAKS_ON_HOST)
    model = model_of(have.record, "welch_fused")
    is_native = fits(backend, job, fused)
    terms = _in_batches(job, model, fused=fused, is_native=is_native)
    made = replace(blank, terms=terms, error=model.error, source=have.source)
    return _corrected(job, made)


@lru_cache(maxsize=512)
def _op_types(
    shape: tuple[int, int], job: WelchJob, fused: bool
) -> tuple[str, tuple[TensorType, ...], TensorType, Any]:
    graph = welch_graph(shape, job.spec, job.k if fused else 0)
    node = graph.node(graph.outputs[0])
    types = tuple(graph.node(i).type for i in node.inputs)
    return node.op, types, node.type, node.attrs


def fits(backend: Any, job: WelchJob, fused: bool) -> bool:
    """Has the device a kernel of its own for this size?"""
    shape = (min(job.n_rows, batch_rows(job)), job.n_samples)
    op, types, out, attrs = _op_types(shape, job, fused)
    return bool(backend.target.native(registry.get(op), types, out, attrs))


def _in_batches(
    job: WelchJob, model: WelchModel, *, fused: bool, is_native: bool
) -> Terms:
    """The rows go up in batches; each is submitted and waited for."""
    step = batch_rows(job)
    full, rest = divmod(job.n_rows, step)
    total = Terms()
    for rows, times in ((step, full), (rest, 1)):
        if rows and times:
            size = replace(size_of(job), rows=rows)
            one = _one_batch(size, model, fused=fused, is_native=is_native)
            total = add(total, one, times)
    return total


def _one_batch(
    size: WelchSize, model: WelchModel, *, fused: bool, is_native: bool
) -> Terms:
    if not is_native:
        size = replace(size, launches=_COMPOSED_LAUNCHES)
    if fused:
        terms = model.terms(size)
    elif size.k:
        terms = block_terms(model, _host_model(), size)
    else:
        terms = model.terms(size)
    return terms if is_native else scaled(terms, _COMPOSED)


def _host_model() -> WelchModel:
    have = priced(CPU, points_for(CPU))
    record = assumed_cpu(in_a_tab()) if isinstance(have, str) else have.record
    return model_of(record, "welch_host")


def add(one: Terms, other: Terms, times: int = 1) -> Terms:
    """One plus `times` of the other, term by term."""
    sums = {n: getattr(one, n) + times * getattr(other, n) for n in TIMES}
    return Terms(
        launches=one.launches + times * other.launches,
        syncs=one.syncs + times * other.syncs,
        **sums,
    )


def is_finite(candidate: Candidate) -> bool:
    """It can be taken."""
    return math.isfinite(candidate.predicted_ns)
