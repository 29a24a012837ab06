"""A graph as a job: its plan at every place, what that would cost there, or why not.

Every place compiles its own plan, so what is priced is what would run: fused regions,
real kernels, the bytes that really move. A plan made for its price is the one that is
run, if the place is taken.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlxweb.arguments import one_of
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.calibration.corrections import Bucket, corrections, octave
from rlxweb.calibration.known import fitted, known_record, priced
from rlxweb.choose.chooser import REFUSALS
from rlxweb.compile.pipeline import compile_graph
from rlxweb.compile.plan import Plan
from rlxweb.compile.plan_work import work_of
from rlxweb.cost.fusion_gate import (
    FusionTarget,
    IoFusionGate,
    io_fusion_gate_for_target,
)
from rlxweb.cost.model import CpuCostModel, WgpuCostModel
from rlxweb.cost.price import Prices, terms_of
from rlxweb.cost.record import Calibration
from rlxweb.cost.work import Work
from rlxweb.decision.candidate import Candidate
from rlxweb.decision.decision import Decision
from rlxweb.device import Device
from rlxweb.devices.place import CPU, Place
from rlxweb.errors import RlxError, Unsupported
from rlxweb.ir.binding import sample_bound
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import must_be_graph

# A remembered graph keeps its constants alive; larger ones are compiled each time.
KEPT_BYTES = 1 << 16
Gate = IoFusionGate | None
NOBODY = (
    "no backend can lower this graph under the current policy — widen DevicePolicy or "
    "install an extra that brings a device"
)


def checked_mode(cost_mode: str) -> str:
    """The mode as it is. Errors  UsageError for one there is not."""
    return one_of("cost_mode", cost_mode, ("seed", "calibrated"), "graphs")


def gate_of(place: Place, cost_mode: str = "calibrated") -> Gate:
    """What fusing must gain on an engine: measured prices, or RLX's constants.

    None where nothing was measured: the engine's own assumptions stand then.
    Errors   UsageError for an unknown cost_mode.
    """
    if checked_mode(cost_mode) == "seed":
        return io_fusion_gate_for_target(FusionTarget.of(place.device))
    record = known_record(place)
    if record is None:
        return None
    return fitted(record, _measured_gate)


def _measured_gate(record: Calibration) -> IoFusionGate:
    is_cpu = record.device == Device.CPU.label
    model = CpuCostModel if is_cpu else WgpuCostModel
    return IoFusionGate.calibrated(model.from_record(record, model.SEED["device"]))


@dataclass(slots=True)
class GraphJob:
    """See `chooser.Job`. It has a copy of the graph, which may be remembered with it.

    optimise, cost_mode   as `Session` has them
    there   inputs that lie on the device already; only that one is asked then
    decisions   what was decided about the graph before it became a job
    kind    jobs that correct each other's prices: whatever runs as its graph on every
            engine is a "graph"
    """

    graph: Graph
    optimise: bool = True
    cost_mode: str = "calibrated"
    there: frozenset[str] = frozenset()
    kind: str = "graph"
    decisions: tuple[Decision, ...] = ()
    _plans: list[tuple[Backend, Gate, Plan]] = field(default_factory=list)
    _works: dict[Place, Work] = field(default_factory=dict)

    reach: Literal["anywhere"] = field(default="anywhere", init=False)

    def __post_init__(self) -> None:
        must_be_graph(self.graph)
        self.graph = self.graph.copy()

    @property
    def title(self) -> str:
        return f"graph '{self.graph.name}'"

    @property
    def key(self) -> Hashable:
        """None for a graph too large to be kept, or one that cannot be looked up."""
        nodes = self.graph.nodes()
        if sum(n.type.nbytes for n in nodes if n.op == "constant") > KEPT_BYTES:
            return None
        key = self.kind, self.graph.key, self.optimise, self.cost_mode, self.there
        try:
            hash(key)
        except TypeError:  # an attribute of a custom op
            return None
        return key

    def plan_on(self, backend: Backend, place: Place) -> Plan:
        """The plan of the graph on an open engine, made once.

        Of a graph whose sizes vary it is the plan for sizes that its dims may have.

        Errors   those of `compile_graph`.
        """
        gate = gate_of(place, self.cost_mode)
        # A lost engine is opened as another; its plan would keep it in memory.
        self._plans = [one for one in self._plans if not one[0].lost]
        for engine, its_gate, plan in self._plans:
            if engine is backend and its_gate == gate:
                return plan
        if self.cost_mode == "calibrated":
            record = known_record(place)
            backend.prefer(() if record is None else record.races)
        target = backend.target
        target = target if gate is None else replace(target, gate=gate)
        graph = sample_bound(self.graph)
        plan = compile_graph(graph, target, optimise=self.optimise)
        if self.decisions:
            plan = replace(plan, decisions=(*self.decisions, *plan.decisions))
        self._plans.append((backend, gate, plan))
        return plan

    def cpu_ns(self) -> float:
        return self._way(CPU).predicted_ns

    def offers(self, place: Place) -> Iterator[Candidate]:
        yield self._way(place)

    def asked(self, place: Place) -> Sequence[Candidate]:
        backend = pool.backend(place.device.label, place.adapter)
        self.plan_on(backend, place)
        if self.there:
            return [self._way(place)]
        return [Candidate(place.device, place.device.label, adapter=place.adapter)]

    def points(self, place: Place) -> tuple[str, ...]:
        return ("submit", "call")

    def bucket(self, candidate: Candidate) -> Bucket | None:
        work = self._works.get(Place(candidate.device, candidate.adapter))
        if work is None:
            return None
        flops = sum(i.flops for i in work.items)
        return (
            candidate.engine,
            self.kind,
            octave(max(1, int(flops))),
            octave(max(1, sum(i.nbytes for i in work.items))),
            octave(max(1, sum(i.launches for i in work.items))),
            octave(1 + work.upload_bytes + work.readback_bytes),
        )

    def numbers(self, candidate: Candidate) -> dict[str, Any]:
        if not self.there or candidate.terms is None:
            return {}
        names = ", ".join(f"'{name}'" for name in sorted(self.there))
        return {"notes": (f"what lies there is not priced as uploaded: {names}",)}

    def nobody(self, reasons: str, places: Sequence[Place]) -> RlxError:
        return Unsupported(self.title, NOBODY, reasons or "no device is allowed")

    def _way(self, place: Place) -> Candidate:
        blank = Candidate(place.device, place.label, adapter=place.adapter)
        try:
            backend = pool.backend(place.device.label, place.adapter)
            blank = replace(blank, engine=backend.name)
            plan = self.plan_on(backend, place)
            have = priced(place, self.points(place))
        except REFUSALS as error:
            return replace(blank, blocker=str(error))
        if isinstance(have, str):
            return replace(blank, blocker=have)
        work = self._works[place] = work_of(plan, backend.target, self.there)
        terms = terms_of(work, fitted(have.record, Prices))
        made = replace(blank, terms=terms, source=have.source)
        bucket = self.bucket(made)
        factor = 1.0 if bucket is None else corrections.factor(bucket)
        return replace(made, correction=factor)
