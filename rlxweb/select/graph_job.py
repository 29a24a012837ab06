"""Graph as a placeable job: its plan at every place, with its predicted cost or the
reason why it cannot run.

Every place compiles its own plan, so what is priced is what would run: fused regions,
real kernels, the bytes that really move. A plan made for its price is the one that is
run, if the place is taken.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.compiler.plan import Plan
from rlxweb.compiler.plan_workload import plan_workload
from rlxweb.core.argument_validation import check_choice
from rlxweb.core.device import Device
from rlxweb.core.errors import RlxError, Unsupported
from rlxweb.cost.calibration_record import Calibration
from rlxweb.cost.decision import Candidate, Decision
from rlxweb.cost.device_models import CpuCostModel, WgpuCostModel
from rlxweb.cost.fusion_gate import (
    FusionTarget,
    IoFusionGate,
    io_fusion_gate_for_target,
)
from rlxweb.cost.work_pricing import FittedPrices, workload_terms
from rlxweb.cost.workload import Workload
from rlxweb.engines.capabilities import Tunes
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine
from rlxweb.ir.dim_binding import sample_graph
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import require_graph
from rlxweb.select.calibration.engine_calibration_lookup import (
    engine_calibration,
    fit_cached,
    known_record,
)
from rlxweb.select.calibration.observed_run_corrections import (
    Bucket,
    corrections,
    nearest_octave,
)
from rlxweb.select.chooser import REFUSAL_ERRORS
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace

# A remembered graph keeps its constants alive; larger ones are compiled each time.
MAX_CACHED_CONSTANT_BYTES = 1 << 16
OptionalGate = IoFusionGate | None
NO_DEVICE = (
    "no backend can lower this graph under the current policy — allow more devices in "
    "the DevicePolicy, or install an extra of rlxweb that adds a device"
)


def check_cost_mode(cost_mode: str) -> str:
    """Return the cost mode unchanged. Raises UsageError for an unknown one."""
    return check_choice("cost_mode", cost_mode, ("seed", "calibrated"), "graphs")


def fusion_gate_at(place: DevicePlace, cost_mode: str = "calibrated") -> OptionalGate:
    """Return the fusion gate of an engine: measured prices, or RLX's constants.

    None where nothing was measured: the engine's own assumptions stand then.
    Errors   UsageError for an unknown cost_mode.
    """
    if check_cost_mode(cost_mode) == "seed":
        return io_fusion_gate_for_target(FusionTarget.of(place.device))
    record = known_record(place)
    if record is None:
        return None
    return fit_cached(record, _calibrated_gate)


def _calibrated_gate(record: Calibration) -> IoFusionGate:
    is_cpu = record.device == Device.CPU.label
    model = CpuCostModel if is_cpu else WgpuCostModel
    return IoFusionGate.calibrated(model.from_record(record, model.SEED["device"]))


@dataclass(slots=True)
class GraphJob:
    """Job that runs a graph; implements `PlaceableJob`. It owns a copy of the graph,
    which may be cached with it.

    optimise, cost_mode   as `Session` has them
    on_device  inputs that lie on the device already; only that one is asked then
    decisions   what was decided about the graph before it became a job
    kind    jobs that correct each other's prices: whatever runs as its graph on every
            engine is a "graph"
    """

    graph: Graph
    optimise: bool = True
    cost_mode: str = "calibrated"
    on_device: frozenset[str] = frozenset()
    kind: str = "graph"
    decisions: tuple[Decision, ...] = ()
    _plans: list[tuple[Engine, OptionalGate, Plan]] = field(default_factory=list)
    _workloads: dict[DevicePlace, Workload] = field(default_factory=dict)

    allowed_devices: Literal["anywhere"] = field(default="anywhere", init=False)

    def __post_init__(self) -> None:
        require_graph(self.graph)
        self.graph = self.graph.copy()

    @property
    def title(self) -> str:
        return f"graph '{self.graph.name}'"

    @property
    def key(self) -> Hashable:
        """Cache key of the graph's picks; None for a graph too large to be cached or
        one that cannot be hashed.
        """
        nodes = self.graph.nodes()
        if (
            sum(n.type.nbytes for n in nodes if n.op == "constant")
            > MAX_CACHED_CONSTANT_BYTES
        ):
            return None
        key = self.kind, self.graph.key, self.optimise, self.cost_mode, self.on_device
        try:
            hash(key)
        except TypeError:  # an attribute of a custom op
            return None
        return key

    def plan_for(self, engine: Engine, place: DevicePlace) -> Plan:
        """Return the graph's plan on an open engine; each is compiled once.

        Of a graph whose sizes vary it is the plan for sizes that its dims may have.

        Errors   those of `compile_graph`.
        """
        gate = fusion_gate_at(place, self.cost_mode)
        # A lost engine is opened as another; its plan would keep it in memory.
        self._plans = [entry for entry in self._plans if not entry[0].lost]
        for cached_engine, cached_gate, plan in self._plans:
            if cached_engine is engine and cached_gate == gate:
                return plan
        if self.cost_mode == "calibrated" and isinstance(engine, Tunes):
            record = known_record(place)
            engine.apply_autotuning(() if record is None else record.races)
        target = engine.target
        target = target if gate is None else replace(target, gate=gate)
        graph = sample_graph(self.graph)
        plan = compile_graph(graph, target, optimise=self.optimise)
        if self.decisions:
            plan = replace(plan, decisions=(*self.decisions, *plan.decisions))
        self._plans.append((engine, gate, plan))
        return plan

    def cpu_ns(self) -> float:
        return self._candidate(CPU_PLACE).predicted_ns

    def candidates(self, place: DevicePlace) -> Iterator[Candidate]:
        yield self._candidate(place)

    def requested_candidates(self, place: DevicePlace) -> Sequence[Candidate]:
        engine = pool.engine(place.device.label, place.adapter)
        self.plan_for(engine, place)
        if self.on_device:
            return [self._candidate(place)]
        return [Candidate(place.device, place.device.label, adapter=place.adapter)]

    def point_kinds(self, place: DevicePlace) -> tuple[str, ...]:
        return ("submit", "call")

    def bucket(self, candidate: Candidate) -> Bucket | None:
        workload = self._workloads.get(DevicePlace(candidate.device, candidate.adapter))
        if workload is None:
            return None
        flops = sum(item.flops for item in workload.items)
        return (
            candidate.engine,
            self.kind,
            nearest_octave(max(1, int(flops))),
            nearest_octave(max(1, sum(item.nbytes for item in workload.items))),
            nearest_octave(max(1, sum(item.launches for item in workload.items))),
            nearest_octave(1 + workload.upload_bytes + workload.readback_bytes),
        )

    def decision_numbers(self, candidate: Candidate) -> dict[str, Any]:
        if not self.on_device or candidate.terms is None:
            return {}
        names = ", ".join(f"'{name}'" for name in sorted(self.on_device))
        return {
            "notes": (f"inputs already on the device have no upload cost: {names}",)
        }

    def no_device_error(self, reasons: str, places: Sequence[DevicePlace]) -> RlxError:
        return Unsupported(self.title, NO_DEVICE, reasons or "no device is allowed")

    def _candidate(self, place: DevicePlace) -> Candidate:
        """Return the priced candidate at a place, or a blocked one with the reason."""
        candidate = Candidate(place.device, place.label, adapter=place.adapter)
        try:
            engine = pool.engine(place.device.label, place.adapter)
            candidate = replace(candidate, engine=engine.name)
            plan = self.plan_for(engine, place)
            calibration = engine_calibration(place, self.point_kinds(place))
        except REFUSAL_ERRORS as error:
            return replace(candidate, blocker=str(error))
        if isinstance(calibration, str):
            return replace(candidate, blocker=calibration)
        workload = self._workloads[place] = plan_workload(
            plan, engine.target, self.on_device
        )
        terms = workload_terms(workload, fit_cached(calibration.record, FittedPrices))
        priced_candidate = replace(candidate, terms=terms, source=calibration.source)
        bucket = self.bucket(priced_candidate)
        factor = 1.0 if bucket is None else corrections.factor(bucket)
        return replace(priced_candidate, correction=factor)
