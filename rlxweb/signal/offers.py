"""A Welch estimate as a job: its ways at every place, and what each would cost there.

"fast" averages on the CPU, "ultra" its first segment alone; "fused" averages on a
device, which searches the peaks as well ("fused_op") or leaves that to the host
("block_fft_host"). The statistic asked for is the one computed: a single segment stands
for several only where the caller said `min_segments=1`. Which way is taken is
`choose/chooser.py`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.calibration.corrections import Bucket, corrections, octave
from rlxweb.calibration.known import Priced, fitted, priced, priced_cpu
from rlxweb.choose.chooser import Reach
from rlxweb.cost.welch_model import WelchModel, WelchSize, block_terms
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.strategy import WelchPeaksStrategy, parse_welch_peaks_strategy
from rlxweb.decision.terms import Terms
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.errors import DeviceError, DTypeError, RlxError, Unsupported, UsageError
from rlxweb.host.spec import WelchSpec
from rlxweb.signal.engine import NUMPY, Engine, How, batch_rows, device_engine

Strategy = str | WelchPeaksStrategy

NO_MODEL = "it needs a trained model of the transform, and rlxweb has none yet"
NOT_ONE_SEGMENT = "it averages 1 segment only; min_segments=1 allows that"
PEAKS_ON_HOST = "local maxima are searched on the host"
ON_HOST = ("ultra", "fast")
"""The strategies that average on the CPU, whatever device they are compared with."""

_OURS = {
    WelchPeaksStrategy.AUTO: "auto",
    WelchPeaksStrategy.ULTRA_FAST: "ultra",
    WelchPeaksStrategy.FAST_STREAMING: "fast",
    WelchPeaksStrategy.RLX_COMPILED: "fused",
    WelchPeaksStrategy.LEARNED_COMPILED: "learned",
}
# NumPy's time against float32 samples, where a record has no points of its own.
_WIDER = {"float32": 1.0, "float64": 1.4, "complex64": 2.0, "complex128": 2.8}
# A size without a fused kernel is composed: more passes over memory, more launches.
_COMPOSED, _COMPOSED_LAUNCHES = 4.0, 8


@dataclass(frozen=True, slots=True)
class WelchJob:
    """What is to be run: the estimate, rows [n_rows, n_samples] and k peaks of each.

    k             0 asks for the spectrum itself
    mode          "bins" or "peaks", as `welch_peaks` has them
    min_segments  1 where the caller allows a single segment to stand for all
    strategy      "auto", or the one of "ultra", "fast", "fused", "learned" to be used
    """

    spec: WelchSpec
    n_rows: int
    n_samples: int
    k: int
    mode: str = "bins"
    min_segments: int | None = None
    strategy: str = "auto"

    @property
    def title(self) -> str:
        return "this job"

    @property
    def key(self) -> WelchJob:
        return self

    @property
    def reach(self) -> Reach:
        if self.strategy == "auto":
            return "anywhere"
        return "cpu" if self.strategy in ON_HOST else "devices"

    def cpu_ns(self) -> float:
        return next(_on_cpu(self)).predicted_ns  # "fast" comes first

    def offers(self, place: Place) -> Iterator[Candidate]:
        ways = _on_cpu(self) if place.device is Device.CPU else _on_device(self, place)
        return (w for w in ways if self.strategy in ("auto", w.strategy))

    def asked(self, place: Place) -> Sequence[Candidate]:
        """See `Job`.

        Errors   UsageError for a strategy or an adapter the place has not; DTypeError
        when it would have to narrow; Unsupported for what it has no kernel for.
        """
        is_cpu = place.device is Device.CPU
        where = f"welch_peaks on {place.device.display}"
        if is_cpu and place.adapter:
            raise UsageError(
                where,
                f"adapter {place.adapter!r} was asked for",
                "the CPU has none",
                "leave the adapter out, or name a GPU",
            )
        if not is_cpu:
            _refuse(self.spec, place)
        has = ON_HOST if is_cpu else ("fused",)
        if self.strategy not in ("auto", *has):
            raise UsageError(
                where,
                f"strategy {self.strategy!r} does not run there",
                f"it has {' and '.join(has)}",
                "leave the device or the strategy open",
            )
        wanted = has if self.min_segments == 1 else has[-1:]
        return [
            way
            for way in self.offers(place)
            if way.strategy in (wanted if self.strategy == "auto" else has)
        ]

    def points(self, place: Place) -> tuple[str, ...]:
        return ("welch_host",) if place.device is Device.CPU else ("welch_fused",)

    def bucket(self, candidate: Candidate) -> Bucket:
        size = size_of(self.by(candidate))
        return (
            candidate.engine,
            f"welch {candidate.strategy} {candidate.how}".strip(),
            octave(size.n),
            octave(size.rows),
            octave(size.segments),
            octave(size.k + 1),
            self.spec.dtype,
        )

    def numbers(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "rows": self.n_rows,
            "n_fft": self.spec.nfft,
            "n_samples": self.n_samples,
            "segments": size_of(self.by(candidate)).segments,
            "k": self.k,
        }

    def nobody(self, reasons: str, places: Sequence[Place]) -> RlxError:
        if not reasons and places:
            named = ", ".join(map(str, places))
            reasons = f"none of {named} has the strategy {self.strategy!r}"
        return UsageError(
            "welch_peaks",
            "no strategy and device is left that may run it",
            reasons or "the list of devices is empty",
            "allow another device or strategy",
        )

    def by(self, candidate: Candidate) -> WelchJob:
        """The job a way computes: "ultra" averages the first segment alone."""
        if candidate.strategy != "ultra":
            return self
        return replace(self, spec=replace(self.spec, n_segments=1))


def checked_strategy(strategy: Strategy, min_segments: int | None) -> str:
    """Our name of a strategy.

    Errors   UsageError for an unknown one, and for "ultra" where more segments than its
    one are asked for; Unsupported for "learned".
    """
    how = _OURS[parse_welch_peaks_strategy(strategy)]
    if how == "learned":
        raise Unsupported(
            "welch_peaks with strategy='learned'", NO_MODEL, hint="use strategy='fused'"
        )
    if how == "ultra" and (min_segments or 1) > 1:
        raise UsageError(
            "welch_peaks with strategy='ultra'",
            "it averages 1 segment",
            f"min_segments is {min_segments}",
            "leave min_segments out, or use strategy='fast'",
        )
    return how


def engine_for(candidate: Candidate) -> Engine:
    """What runs a candidate. Errors  UsageError for one that is blocked."""
    if candidate.blocker:
        raise UsageError(
            f"{candidate.strategy} on {candidate.engine}", candidate.blocker
        )
    if candidate.device is Device.CPU or candidate.strategy in ON_HOST:
        return NUMPY
    how: How = "block_fft_host" if candidate.how == "block_fft_host" else "fused_op"
    return device_engine(candidate.device, candidate.adapter, how)


def _refuse(spec: WelchSpec, place: Place) -> None:
    pool.backend(place.device.label, place.adapter)
    reason = spec.only_on_host
    where = f"welch on {place.device.display}"
    if reason and spec.dtype == "float64":
        raise DTypeError(
            where,
            reason,
            "nothing is narrowed unasked",
            "pass precision='f32', give float32 samples, or use device='cpu'",
        )
    if reason:
        raise Unsupported(where, reason, hint="use device='cpu'")


def size_of(job: WelchJob) -> WelchSize:
    """The job as the model sees it."""
    segments = job.spec.segments_of(job.n_samples)
    return WelchSize(job.spec.nfft, segments, job.n_rows, job.k, job.n_samples)


host_model = partial(WelchModel, how="welch_host")
device_model = partial(WelchModel, how="welch_fused")


def _host_model() -> tuple[WelchModel, str]:
    have = priced_cpu(("welch_host",))
    return fitted(have.record, host_model), have.source


def _on_cpu(job: WelchJob) -> Iterator[Candidate]:
    model, source = _host_model()
    for strategy in ("fast", "ultra"):
        # Naming the strategy allows its single segment.
        allowed = strategy == "fast" or 1 == job.min_segments or job.strategy == "ultra"
        blank = Candidate(
            Device.CPU,
            NUMPY.name,
            strategy,
            "host",
            error=model.error,
            source=source,
            blocker="" if allowed else NOT_ONE_SEGMENT,
        )
        terms = model.terms(size_of(job.by(blank)))
        yield _corrected(job, blank, terms.slowed(_WIDER[job.spec.dtype]))


def _corrected(job: WelchJob, blank: Candidate, terms: Terms) -> Candidate:
    factor = corrections.factor(job.bucket(blank))
    return replace(blank, terms=terms, correction=factor)


def _on_device(job: WelchJob, place: Place) -> Iterator[Candidate]:
    blank = Candidate(place.device, place.label, "fused", adapter=place.adapter)
    try:
        backend = pool.backend(place.device.label, place.adapter)
    except DeviceError as error:
        yield replace(blank, blocker=str(error))
        return
    blank = replace(blank, engine=backend.name)
    have = priced(place, job.points(place))
    reason = job.spec.only_on_host or (have if isinstance(have, str) else "")
    for how in ("fused_op", "block_fft_host") if job.k else ("block_fft_host",):
        one = replace(blank, how=how, blocker=reason)
        if not reason and not isinstance(have, str):
            one = _priced_way(job, one, have, backend)
        yield one
    if job.k:
        yield replace(blank, strategy="learned", blocker=NO_MODEL)


def _priced_way(
    job: WelchJob, blank: Candidate, have: Priced, backend: Backend
) -> Candidate:
    fused = blank.how == "fused_op"
    if fused and job.mode == "peaks":
        return replace(blank, blocker=PEAKS_ON_HOST)
    model = fitted(have.record, device_model)
    terms = _in_batches(job, model, fused=fused, is_native=fits(backend, job, fused))
    return _corrected(job, replace(blank, error=model.error, source=have.source), terms)


@lru_cache(maxsize=512)
def _op_of(shape: tuple[int, int], spec: WelchSpec, k: int) -> tuple[Any, ...]:
    """The op that computes it with its types and attributes, as a target is asked."""
    from rlxweb.cost.graph_work import asked_of  # none is made for the CPU
    from rlxweb.host.welch_graph import welch_graph

    graph = welch_graph(shape, spec, k)
    return asked_of(graph, graph.node(graph.outputs[0]))


def fits(backend: Backend, job: WelchJob, fused: bool) -> bool:
    """Has the device a kernel of its own for this size?"""
    shape = (min(job.n_rows, batch_rows(job.spec, job.n_samples)), job.n_samples)
    return backend.target.native(*_op_of(shape, job.spec, job.k if fused else 0))


def _in_batches(
    job: WelchJob, model: WelchModel, *, fused: bool, is_native: bool
) -> Terms:
    """The rows go up in batches; each is submitted and waited for."""
    step = batch_rows(job.spec, job.n_samples)
    full, rest = divmod(job.n_rows, step)
    whole = size_of(job)
    if not is_native:
        whole = replace(whole, launches=_COMPOSED_LAUNCHES)
    total = Terms()
    for rows, times in ((step, full), (rest, 1)):
        if not rows or not times:
            continue
        size = replace(whole, rows=rows)
        if fused or not job.k:
            one = model.terms(size)
        else:
            one = block_terms(model, _host_model()[0], size)
        total = total.plus(one if is_native else one.slowed(_COMPOSED), times)
    return total
