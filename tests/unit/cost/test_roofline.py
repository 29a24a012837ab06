"""The roof over a run, and the run on a time line."""

from __future__ import annotations

import json

import pytest

from rlxweb.cost.kinds import assumed_cpu
from rlxweb.cost.record import Calibration
from rlxweb.cost.roofline import Roofline, Spent
from rlxweb.cost.trace import Span, one_after_another, trace_of

ROOF = Roofline(100.0, 10.0)


def test_below_the_ridge_memory_limits_and_above_it_arithmetic() -> None:
    assert ROOF.ridge == 10.0
    assert (ROOF.at(1.0), ROOF.at(10.0), ROOF.at(1e3)) == (10.0, 100.0, 100.0)
    assert ROOF.least_ns(1e6, 1e6) == 1e5
    assert ROOF.least_ns(1e9, 1e6) == 1e7


def test_a_roof_comes_of_the_best_product_and_the_largest_copy() -> None:
    record = assumed_cpu()
    found = Roofline.of(record, "assumed")
    assert found is not None
    rates = [
        2 * p.size["m"] * p.size["k"] * p.size["n"] / p.ns for p in record.of("matmul")
    ]
    assert found.gflops == pytest.approx(max(rates))
    last = max(record.of("copy"), key=lambda p: p.size["bytes"])
    assert found.gbs == pytest.approx(last.size["bytes"] / last.ns)
    assert found.source == "assumed"


def test_a_record_without_them_has_no_roof() -> None:
    bare = Calibration("cpu", "NumPy", "numpy", "", "", "", ())
    assert Roofline.of(bare, "calibrated") is None


def test_what_was_spent_against_the_roof() -> None:
    one = Spent("gelu", "elementwise", 2e5, 1e6, 1_000_000)
    assert (one.gflops, one.gbs, one.intensity) == (5.0, 5.0, 1.0)
    assert one.share_of(ROOF) == 0.5
    assert one.share_of(None) is None
    assert one.as_json(ROOF)["of_roof"] == 0.5


def test_what_took_no_time_or_did_nothing_has_no_share() -> None:
    assert Spent("view", "view", 0.0, 1.0, 1).share_of(ROOF) is None
    assert Spent("wait", "wait", 5.0).share_of(ROOF) is None
    idle = Spent("wait", "wait", 0.0)
    assert (idle.gflops, idle.gbs, idle.intensity) == (0.0, 0.0, 0.0)


def test_a_trace_has_a_line_for_each_and_microseconds() -> None:
    """A trace is in the format of Chrome's trace events, as Perfetto documents it."""
    parts = [Spent("a", "matmul", 2_000.0, 8.0, 4), Spent("b", "copy", 500.0, 0.0, 8)]
    spans = [*one_after_another("steps", parts, 1_000.0), Span("run", 0.0, parts[0])]
    trace = json.loads(json.dumps(trace_of("mlp", spans, ROOF)))
    named = [e for e in trace["traceEvents"] if e["ph"] == "M"]
    assert [e["args"]["name"] for e in named] == ["mlp", "steps", "run"]
    drawn = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in drawn] == [
        ("a", 1, 1.0, 2.0),
        ("b", 1, 3.0, 0.5),
        ("a", 2, 0.0, 2.0),
    ]
    assert drawn[0]["args"]["flops"] == 8.0
    assert drawn[0]["cat"] == "matmul"
