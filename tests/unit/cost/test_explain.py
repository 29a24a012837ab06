"""Decisions as text and as data: readable times, ordered terms, blockers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph, Session
from rlxweb.core.device import Device
from rlxweb.cost.decision import (
    TIME_FIELDS,
    Candidate,
    Decision,
    Terms,
    candidate_name,
    explain_decision,
    explain_json,
    format_ns,
    terms_text,
)

CPU = Candidate(
    Device.CPU,
    "NumPy 2",
    "fast",
    "host",
    terms=Terms(launches=1, compute_ns=3e6, traffic_ns=0.5e6),
    error=0.072,
    source="calibrated",
)
GPU = Candidate(
    Device.VULKAN,
    "a card (vulkan)",
    "fused",
    "fused_op",
    terms=Terms(2, 1, *(1e3 * t for t in range(1, 9))),
    correction=1.5,
    source="assumed",
    adapter="card",
)
BLOCKED = Candidate(Device.CUDA, "cuda", "fused", blocker="no backend", terms=Terms())
CANDIDATES = (GPU, CPU, BLOCKED)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.0, "0.00 ns"),
        (1.0, "1.00 ns"),
        (9.994, "9.99 ns"),
        (9.995, "10.0 ns"),
        (99.94, "99.9 ns"),
        (99.95, "100 ns"),
        (999.4, "999 ns"),
        (999.5, "1.00 us"),
        (1_000, "1.00 us"),
        (412_345, "412 us"),
        (999_499, "999 us"),
        (999_500, "1.00 ms"),
        (1_304_000, "1.30 ms"),
        (999_600_000, "1.00 s"),
        (123_456_789_000, "123 s"),
        (4_000e9, "4000 s"),
        (math.inf, "never"),
        (math.nan, "never"),
    ],
)
def test_times_are_readable(ns: float, text: str) -> None:
    assert format_ns(ns) == text


@given(st.floats(0.01, 1e14))
def test_times_keep_three_digits(ns: float) -> None:
    """A printed time is within half a unit of its third digit, and never "1000 us"."""
    number, unit = format_ns(ns).split()
    factor = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    tolerance = 0.005 if ns < 1 else 0.0051 * ns
    assert abs(float(number) * factor - ns) <= tolerance * 1.0001
    assert unit == "s" or float(number) < 1000


def test_names_of_candidates() -> None:
    assert candidate_name(CPU) == "fast on NumPy 2"
    assert candidate_name(GPU) == "fused (fused_op) on a card (vulkan)"
    assert candidate_name(BLOCKED) == "fused on cuda"
    assert candidate_name(replace(GPU, strategy="graph")) == "a card (vulkan)"


def test_terms_in_the_order_of_a_run() -> None:
    """Terms are listed once each, in order, after the launches and waits."""
    assert GPU.terms is not None
    assert terms_text(GPU.terms) == (
        "2 launches, 1 wait, dispatch 1.00 us, sync 2.00 us, upload 3.00 us, "
        "compute 4.00 us, traffic 5.00 us, read-back 6.00 us, host 7.00 us, "
        "other 8.00 us"
    )


def test_zero_terms_are_left_out() -> None:
    assert terms_text(Terms()) == ""
    assert terms_text(Terms(launches=1, syncs=2, host_ns=5.0)) == (
        "1 launch, 2 waits, host 5.00 ns"
    )


@pytest.mark.parametrize("name", TIME_FIELDS)
def test_every_term_is_shown(name: str) -> None:
    """Every term is shown, so that the printed parts add up."""
    assert terms_text(Terms(**{name: 3e6})).endswith(" 3.00 ms")


def test_a_bare_decision_is_one_line() -> None:
    assert explain_decision(Decision("x", "why not")) == "x: why not"
    numbered_decision = Decision("x", "why not", {"a": 1, "b": "two"})
    assert explain_decision(numbered_decision) == "x: why not (a 1, b two)"


def test_a_full_decision() -> None:
    """A decision lists candidates by rank with names aligned, then crossover and
    notes.
    """
    numbers = {
        "rows": 3,
        "predicted_ms": 0.054,
        "source": "assumed",
        "crossover": "CPU is fastest below batch size 8",
        "notes": ["one", "two"],
    }
    text = explain_decision(Decision("fused on it", "it is fast", numbers, CANDIDATES))
    assert text.splitlines() == [
        "fused on it: it is fast (rows 3)",
        "",
        "candidates, fastest prediction first:",
        "  fused (fused_op) on a card (vulkan)  predicted 54.0 us "
        "(assumed, corrected by a factor of 1.50 based on earlier runs)",
        f"      {terms_text(GPU.terms or Terms())}",
        "  fast on NumPy 2                      predicted 3.50 ms "
        "(calibrated, model ±7%)",
        "      1 launch, compute 3.00 ms, traffic 500 us",
        "  fused on cuda                        excluded: no backend",
        "",
        "crossover: CPU is fastest below batch size 8",
        "note: one",
        "note: two",
    ]


@pytest.mark.parametrize(
    ("measured", "expected_text"),
    [
        (3.5e6, "predicted 3.50 ms (calibrated, model ±7%), measured 3.50 ms (+0%)"),
        (7.0e6, "measured 7.00 ms (-50%)"),
        (2.8e6, "measured 2.80 ms (+25%)"),
    ],
)
def test_measured_times_are_shown_with_predictions(
    measured: float, expected_text: str
) -> None:
    """The sign shows the direction of the model's error."""
    measured_candidate = replace(CPU, measured_ns=measured)
    assert expected_text in explain_decision(
        Decision("x", "y", {}, (measured_candidate,))
    )


def test_a_measured_time_needs_no_prediction() -> None:
    unpriced_candidate = replace(CPU, terms=None)
    assert (
        "no prediction\n"
        in explain_decision(Decision("x", "y", {}, (unpriced_candidate,))) + "\n"
    )
    measured_candidate = replace(unpriced_candidate, measured_ns=2e6)
    text = explain_decision(Decision("x", "y", {}, (measured_candidate,)))
    assert text.endswith("no prediction, measured 2.00 ms")


def test_a_prediction_without_a_source_says_so() -> None:
    candidate = Candidate(Device.CPU, "e", terms=Terms(compute_ns=1.0))
    assert "(unknown source)" in explain_decision(Decision("x", "y", {}, (candidate,)))


def test_a_decision_as_json() -> None:
    """A decision as JSON has a schema and every candidate in full."""
    decision = Decision(
        "what", "why", {"crossover": "text", "score_ns": -3.5}, CANDIDATES
    )
    document = json.loads(json.dumps(explain_json(decision), allow_nan=False))
    assert next(iter(document)) == "schema"
    assert document["schema"] == "rlxweb.explain/1"
    assert (document["what"], document["why"]) == ("what", "why")
    assert document["numbers"] == {"crossover": "text", "score_ns": -3.5}
    first, second, third = document["candidates"]
    assert first["terms"] | {"total_ns": 36_000.0} == first["terms"]
    assert first["predicted_ns"] == 54_000.0
    assert (first["device"], first["adapter"]) == ("vulkan", "card")
    assert (first["strategy"], first["how"]) == ("fused", "fused_op")
    assert (second["error"], second["measured_ns"]) == (0.072, None)
    assert (third["blocker"], third["predicted_ns"]) == ("no backend", None)


def test_a_decision_without_candidates_has_no_candidates_key() -> None:
    document = explain_json(Decision("what", "why"))
    assert document == {
        "schema": "rlxweb.explain/1",
        "what": "what",
        "why": "why",
        "numbers": {},
    }


def test_a_compiled_graph_explains_itself() -> None:
    """A compiled graph explains its device, decisions and plan; decisions are JSON as
    well.
    """
    graph = Graph("chain")
    graph.set_outputs([graph.exp(graph.input("x", (4,))) + 1.0])
    compiled: Any = Session("cpu").compile(graph)
    text = compiled.explain()
    assert text.startswith(f"chain on NumPy {np.__version__}\n")
    assert str(compiled.plan) in text
    for decision in compiled.decisions:
        assert explain_decision(decision) in text
        json.dumps(explain_json(decision), allow_nan=False)
