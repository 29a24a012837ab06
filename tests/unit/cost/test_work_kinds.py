"""The table of work kinds: required fields of every record, and that one record adds a
kind.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rlxweb import Graph
from rlxweb.cli.calibrate_command import format_rate
from rlxweb.core.device import Device
from rlxweb.core.errors import InputError
from rlxweb.cost.calibration_json import calibration_from_json
from rlxweb.cost.calibration_probes import CalibrationProbe
from rlxweb.cost.calibration_record import (
    Calibration,
    MeasuredPoint,
)
from rlxweb.cost.graph_work import graph_workload, node_item
from rlxweb.cost.work_kinds import (
    KINDS,
    WorkKind,
    assumed_cpu,
    assumed_gpu,
    price_by_rate,
)
from rlxweb.cost.work_pricing import FittedPrices, workload_terms
from rlxweb.ir.graph import Node
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Drawn
from rlxweb.select.calibration.calibration_jobs import (
    ESSENTIAL_KERNEL_COUNT,
    kernel_jobs,
)
from rlxweb.select.calibration.measure_engine import Calibrator
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace
from tests.engines_under_test import single_op_graph

MEASURED = [kind for kind in KINDS.values() if kind.probes is not None]


def sample_nodes(op: Op) -> Iterator[tuple[Graph, Node]]:
    """Yield each sample of an op as the node of a graph."""
    for sample in op.samples:
        graph = single_op_graph(op, sample, sample.draw())
        yield from ((graph, n) for n in graph.nodes() if n.op == op.name)


def json_round_trip(record: Calibration) -> Calibration:
    return calibration_from_json(json.loads(json.dumps(record.as_json())))


@pytest.mark.parametrize("name", [op.name for op in registry if op.work is not None])
def test_work_kind_of_every_op_is_known(name: str) -> None:
    """An op's kind is in the table with all its sizes, or is measured by itself."""
    nodes = list(sample_nodes(registry.get(name)))
    assert nodes
    for graph, node in nodes:
        item = node_item(graph, node)
        if item.kind in KINDS:
            assert KINDS[item.kind].make_price is not None
            assert set(KINDS[item.kind].min_sizes) <= set(item.size)
        else:  # it is measured by itself
            assert item.kind == name
            assert registry.get(name).calibration_cases
            assert set(item.size) == {"cells", "bytes"}


def test_kinds_of_plans_are_in_the_table() -> None:
    """Kinds that only plans use, and no op names, are in the table."""
    assert {"elementwise", "copy"} <= set(KINDS)


@pytest.mark.parametrize("is_cpu", [True, False])
@pytest.mark.parametrize("kind", MEASURED, ids=lambda kind: kind.name)
def test_probe_work_matches_its_size(kind: WorkKind, is_cpu: bool) -> None:
    """A probe's work follows from its size, by the counts that price a graph."""
    assert kind.probes is not None
    probes = list(kind.probes(is_cpu))
    assert [probe.priority == 0 for probe in probes] == [True] + [False] * len(
        probes[1:]
    )
    for probe in probes:
        assert set(probe.size) == set(kind.min_sizes)
        graph = Graph()
        params = []
        for name, shape_or_input in probe.shapes.items():
            drawn = (
                shape_or_input
                if isinstance(shape_or_input, Drawn)
                else Drawn(shape_or_input)
            )
            params.append(graph.param(name, drawn.shape, drawn.dtype))
        graph.set_outputs([probe.build(graph, *params)])
        items = graph_workload(graph).items
        if kind.flops is not None:
            assert sum(i.flops for i in items) == kind.flops(probe.size)
        if kind.make_price is not None:
            (item,) = items
            assert item.kind == kind.name
            assert probe.size.items() <= item.size.items()


@pytest.mark.parametrize("place", [CPU_PLACE, DevicePlace(Device.GPU)], ids=str)
def test_first_calibration_jobs_cover_every_kind(place: DevicePlace) -> None:
    names = [name.split()[0] for name, _ in kernel_jobs(place)]
    assert sorted(names[:ESSENTIAL_KERNEL_COUNT]) == sorted(
        kind.name for kind in MEASURED
    )


@pytest.mark.parametrize("in_browser", [True, False])
def test_assumed_records_cover_every_kind(in_browser: bool) -> None:
    """The assumed figures survive JSON and are enough to price every kernel."""
    for record in (assumed_cpu(in_browser), assumed_gpu()):
        assert json_round_trip(record) == record
        assert {kind.name for kind in MEASURED} <= {p.what for p in record.points}


@pytest.mark.parametrize("kind_name", KINDS)
def test_size_below_the_minimum_is_rejected(kind_name: str) -> None:
    """A size that is below the minimum or lacks a field is rejected."""
    fields = KINDS[kind_name].min_sizes
    record = Calibration(
        "cpu", "a", "b", "c", "d", "e", (MeasuredPoint(kind_name, fields, 1.0),)
    )
    assert json_round_trip(record) == record
    for name, minimum in fields.items():
        others = {n: v for n, v in fields.items() if n != name}
        for size in (others, others | {name: minimum - 1}):
            invalid_record = replace(
                record, points=(MeasuredPoint(kind_name, size, 1.0),)
            )
            with pytest.raises(InputError, match="not a valid rlxweb calibration"):
                json_round_trip(invalid_record)


SCAN_KIND = WorkKind(
    "scan",
    {"rows": 1, "n": 1},
    flops=lambda size: float(size["rows"] * size["n"]),
    rate_size=lambda size: float(size["n"]),
    probes=lambda is_cpu: [
        CalibrationProbe(
            f"scan {n}",
            {"rows": 8, "n": n},
            {"x": (8, n)},
            lambda g, x: g.cumsum(x),
            priority=3,
        )
        for n in (16, 4096)
    ],
    make_price=price_by_rate,
    assumed_times={"cpu": {(8, 1024): 9_000.0}},
)


@pytest.fixture
def scan_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkKind]:
    """Add a kind to the table, and let an op name it as its kind."""
    monkeypatch.setitem(KINDS, "scan", SCAN_KIND)
    cumsum = registry.get("cumsum")
    registry.register(
        replace(
            cumsum,
            work=lambda inputs, out, attrs: (
                "scan",
                {"rows": out.shape[0], "n": out.shape[1]},
            ),
        ),
        replace=True,
    )
    assumed_cpu.cache_clear()
    yield SCAN_KIND
    registry.register(cumsum, replace=True)
    assumed_cpu.cache_clear()


def scan_graph(rows: int, n: int) -> Graph:
    graph = Graph()
    graph.set_outputs([graph.cumsum(graph.input("x", (rows, n)))])
    return graph


def test_a_new_kind_is_measured_and_shown_with_its_rate(scan_kind: WorkKind) -> None:
    """A new kind is measured by its own probes, in its order, and survives JSON."""
    names = [name for name, _ in kernel_jobs(CPU_PLACE)]
    assert [n for n in names if "scan" in n or "cumsum" in n] == [
        "scan 16",
        "scan 4096",
    ]
    calibrator = Calibrator(Stopwatch(sample_ns=1, samples=1, min_samples=1), math.inf)
    for name, make in kernel_jobs(CPU_PLACE):
        if name.startswith("scan"):
            calibrator.measure(name, make)
    assert [(p.what, p.size) for p in calibrator.points] == [
        ("scan", {"rows": 8, "n": 16}),
        ("scan", {"rows": 8, "n": 4096}),
    ]
    record = replace(assumed_cpu(), points=tuple(calibrator.points))
    assert json_round_trip(record) == record
    assert (
        format_rate(MeasuredPoint("scan", {"rows": 8, "n": 50}, 200.0)) == "2 GFLOP/s"
    )
    incomplete_record = replace(
        record, points=(MeasuredPoint("scan", {"rows": 8}, 1.0),)
    )
    with pytest.raises(InputError, match="not a valid rlxweb calibration"):
        json_round_trip(incomplete_record)


def test_a_new_kind_is_priced(scan_kind: WorkKind) -> None:
    """A new kind is priced by its points, or by the assumed CPU figures."""
    points = (
        MeasuredPoint("scan", {"rows": 1, "n": 10}, 10.0),
        MeasuredPoint("scan", {"rows": 1, "n": 1000}, 100.0),
    )
    workload = graph_workload(scan_graph(4, 100))
    (item,) = workload.items
    assert (item.kind, item.size) == ("scan", {"rows": 4, "n": 100})
    # 1 flop/ns at 10, 10 at 1000: their geometric mean half way
    measured_terms = workload_terms(
        workload, FittedPrices(replace(assumed_cpu(), points=points))
    )
    assert measured_terms.compute_ns == pytest.approx(item.flops / math.sqrt(10.0))
    assert measured_terms.traffic_ns == 0.0
    assumed_terms = workload_terms(
        workload, FittedPrices(replace(assumed_cpu(), points=()))
    )
    assert assumed_terms.compute_ns == pytest.approx(item.flops * 9_000 / (8 * 1024))
