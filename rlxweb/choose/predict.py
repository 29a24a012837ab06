"""What a graph would cost at each place of the machine, and which place is best.

Every place compiles its own plan, so what is priced is what would run: fused regions,
real kernels, the bytes that really move. Choosing among the candidates is here as well;
resolving what a caller or the environment asked for is `resolve.py`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.calibration.corrections import Bucket, corrections, octave
from rlxweb.calibration.worth import Worth, worth
from rlxweb.choose.priced import measure_if_worth_it, priced
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.plan_work import work_of
from rlxweb.cost.price import Prices, terms_of
from rlxweb.cost.record import Calibration
from rlxweb.cost.work import Work
from rlxweb.decision.candidate import Candidate, comparison, ranked
from rlxweb.decision.decision import Decision
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place, available_places
from rlxweb.errors import DeviceError, DTypeError, Unsupported
from rlxweb.ir.graph import Graph

# A preferred device is taken when it is predicted to be at most this much slower.
PREFER_WITHIN = 1.10
# What may be wrong with a graph on one device and right on the next.
REFUSALS = (DeviceError, DTypeError)

_prices: dict[int, Prices] = {}


def prices_of(record: Calibration) -> Prices:
    """The fitted prices of a record, kept as long as it is."""
    found = _prices.get(id(record))
    if found is None or found.record is not record:
        if len(_prices) > 64:
            _prices.clear()
        found = _prices[id(record)] = Prices(record)
    return found


def bucket_of(candidate: Candidate, work: Work) -> Bucket:
    """Where observed runs of graphs of this size are kept."""
    flops = sum(i.flops for i in work.items)
    nbytes = sum(i.nbytes for i in work.items)
    return (
        candidate.engine,
        "graph",
        octave(max(1, int(flops))),
        octave(max(1, nbytes)),
        octave(max(1, sum(i.launches for i in work.items))),
        octave(1 + work.upload_bytes + work.readback_bytes),
    )


def graph_candidate(graph: Graph, place: Place) -> tuple[Candidate, Work | None]:
    """One place's offer: predicted terms, or the reason why there are none."""
    blank = Candidate(place.device, place.label, adapter=place.adapter)
    try:
        backend: Any = pool.backend(place.device.label, place.adapter)
        blank = replace(blank, engine=backend.name)
        plan = compile_graph(graph, backend.target)
        have = priced(place, _points(place))
    except REFUSALS as error:
        return replace(blank, blocker=str(error)), None
    if isinstance(have, str):
        return replace(blank, blocker=have), None
    work = work_of(plan, backend.target)
    terms = terms_of(work, prices_of(have.record))
    made = replace(blank, terms=terms, source=have.source)
    factor = corrections.factor(bucket_of(made, work))
    return replace(made, correction=factor), work


def graph_candidates(
    graph: Graph, places: Sequence[Place] | None = None
) -> tuple[Candidate, ...]:
    """Every place's offer for a graph, fastest prediction first, blocked ones last."""
    at = available_places() if places is None else tuple(places)
    return ranked(graph_candidate(graph, place)[0] for place in at)


@dataclass(frozen=True, slots=True)
class GraphPick:
    """What was picked for a graph, and what is needed to learn from its runs.

    works   device → the work of its plan, for the candidates that have one
    """

    candidate: Candidate
    decision: Decision
    works: Mapping[Device, Work]

    @property
    def device(self) -> Device:
        return self.candidate.device

    def observe(self, device: Device, took_ns: float) -> None:
        """Let a warm run on a device of this machine correct its model."""
        work = self.works.get(device)
        if work is None or worth.is_trivial(took_ns):
            return
        for one in self.decision.candidates:
            if one.device is device and one.terms is not None:
                corrections.note(bucket_of(one, work), one.terms.total_ns, took_ns)


def decide_graph(
    graph: Graph,
    *,
    places: Sequence[Place] | None = None,
    prefer: Sequence[Device] = (),
    worthwhile: Worth = worth,
) -> GraphPick:
    """The place where a graph is predicted to run fastest, and why.

    places   where it may run; None: the CPU, and the other engines of the machine if
             the graph is worth opening them for
    prefer   taken instead when predicted to be at most 10 % slower (`PREFER_WITHIN`)
    Errors   Unsupported when nothing can run it, with every reason.
    """
    notes: list[str] = []
    cpu, _ = graph_candidate(graph, CPU)
    if cpu.blocker == "":
        worthwhile.add(cpu.predicted_ns)
    if places is None:
        places, note = _places_worth_it(cpu, worthwhile)
        notes += [note] if note else []
    if tuple(places) != (CPU,):
        measure_if_worth_it(places, _points, cpu.predicted_ns, worthwhile)
    offers = [graph_candidate(graph, place) for place in places]
    found = ranked(candidate for candidate, _ in offers)
    open_ = [c for c in found if not c.blocker]
    if not open_:
        reasons = "; ".join(f"{c.engine}: {c.blocker}" for c in found)
        raise Unsupported(
            f"graph '{graph.name}'",
            "no device can run it",
            reasons or "the list of devices is empty",
            "allow another device",
        )
    picked = _preferred(open_, prefer)
    works = {c.device: work for c, work in offers if work is not None}
    return GraphPick(picked, _decision(picked, open_, found, notes), works)


def _points(place: Place) -> str:
    return "call" if place.device is Device.CPU else "submit"


def _places_worth_it(
    cpu: Candidate, worthwhile: Worth
) -> tuple[tuple[Place, ...], str]:
    if cpu.blocker:
        return available_places(), ""
    if worthwhile.is_trivial(cpu.predicted_ns):
        return (CPU,), "too small to pay for a trip to any device"
    if not worthwhile.opening(cpu.predicted_ns):
        return (CPU,), worthwhile.rule
    return available_places(), ""


def _preferred(open_: Sequence[Candidate], prefer: Sequence[Device]) -> Candidate:
    best = open_[0]
    near = [c for c in open_ if c.predicted_ns <= PREFER_WITHIN * best.predicted_ns]
    for device in prefer:
        for candidate in near:
            if candidate.device is device:
                return candidate
    return best


def _decision(
    picked: Candidate,
    open_: Sequence[Candidate],
    found: tuple[Candidate, ...],
    notes: Sequence[str],
) -> Decision:
    numbers: dict[str, Any] = {
        "predicted_ms": round(picked.predicted_ns / 1e6, 4),
        "source": picked.source,
    }
    said = [comparison(picked, found)]
    if picked is not open_[0]:
        said.append(f"preferred, being within {PREFER_WITHIN - 1:.0%} of the best")
    why = "; ".join([*said, *notes])
    return Decision(f"device {picked.engine}", why, numbers, found)
