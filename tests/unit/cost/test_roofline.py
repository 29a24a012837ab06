"""Roofline model of a run, and its Chrome trace."""

from __future__ import annotations

import json

import pytest

from rlxweb.cost.calibration_record import Calibration
from rlxweb.cost.chrome_trace import TraceSpan, build_chrome_trace, sequential_spans
from rlxweb.cost.roofline import ProfileEntry, Roofline
from rlxweb.cost.work_kinds import assumed_cpu

ROOFLINE = Roofline(100.0, 10.0)


def test_below_the_ridge_memory_limits_and_above_it_arithmetic() -> None:
    assert ROOFLINE.ridge == 10.0
    assert (
        ROOFLINE.attainable_gflops(1.0),
        ROOFLINE.attainable_gflops(10.0),
        ROOFLINE.attainable_gflops(1e3),
    ) == (10.0, 100.0, 100.0)
    assert ROOFLINE.min_ns(1e6, 1e6) == 1e5
    assert ROOFLINE.min_ns(1e9, 1e6) == 1e7


def test_roofline_uses_the_best_matmul_and_the_largest_copy() -> None:
    record = assumed_cpu()
    roofline = Roofline.from_record(record, "assumed")
    assert roofline is not None
    rates = [
        2 * p.size["m"] * p.size["k"] * p.size["n"] / p.ns
        for p in record.points_of_kind("matmul")
    ]
    assert roofline.gflops == pytest.approx(max(rates))
    largest_copy = max(record.points_of_kind("copy"), key=lambda p: p.size["bytes"])
    assert roofline.gbs == pytest.approx(largest_copy.size["bytes"] / largest_copy.ns)
    assert roofline.source == "assumed"


def test_a_calibration_without_matmul_or_copy_has_no_roofline() -> None:
    bare = Calibration("cpu", "NumPy", "numpy", "", "", "", ())
    assert Roofline.from_record(bare, "calibrated") is None


def test_spent_time_is_compared_with_the_roofline() -> None:
    spent = ProfileEntry("gelu", "elementwise", 2e5, 1e6, 1_000_000)
    assert (spent.gflops, spent.gbs, spent.intensity) == (5.0, 5.0, 1.0)
    assert spent.roofline_fraction(ROOFLINE) == 0.5
    assert spent.roofline_fraction(None) is None
    assert spent.as_json(ROOFLINE)["of_roof"] == 0.5


def test_zero_time_or_zero_work_has_no_share() -> None:
    assert ProfileEntry("view", "view", 0.0, 1.0, 1).roofline_fraction(ROOFLINE) is None
    assert ProfileEntry("wait", "wait", 5.0).roofline_fraction(ROOFLINE) is None
    idle = ProfileEntry("wait", "wait", 0.0)
    assert (idle.gflops, idle.gbs, idle.intensity) == (0.0, 0.0, 0.0)


def test_a_trace_has_a_track_per_name_and_microseconds() -> None:
    """Chrome's trace event format, as Perfetto documents it."""
    spent = [
        ProfileEntry("a", "matmul", 2_000.0, 8.0, 4),
        ProfileEntry("b", "copy", 500.0, 0.0, 8),
    ]
    spans = [
        *sequential_spans("steps", spent, 1_000.0),
        TraceSpan("run", 0.0, spent[0]),
    ]
    trace = json.loads(json.dumps(build_chrome_trace("mlp", spans, ROOFLINE)))
    metadata_events = [e for e in trace["traceEvents"] if e["ph"] == "M"]
    assert [e["args"]["name"] for e in metadata_events] == ["mlp", "steps", "run"]
    duration_events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in duration_events] == [
        ("a", 1, 1.0, 2.0),
        ("b", 1, 3.0, 0.5),
        ("a", 2, 0.0, 2.0),
    ]
    assert duration_events[0]["args"]["flops"] == 8.0
    assert duration_events[0]["cat"] == "matmul"
