"""Smoke report document: words, counts, disagreeing engines and the exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlxweb.smoke.engine_run import EngineOutcome
from rlxweb.smoke.failure_diagnosis import describe_wrong_case
from rlxweb.smoke.report import ReportRequest, build_report, matches_engine
from rlxweb.smoke.result_rows import json_number, not_run_row
from rlxweb.smoke.smoke_engine import SmokeEngine
from tests.unit.smoke.report_factory import make_row

REQUEST = ReportRequest("quick", "", (), "2026-01-01T00:00:00+00:00", {"rlxweb": "0"})


def make_outcome(device: str, *words: str, **engine_fields: Any) -> EngineOutcome:
    """Return the outcome of an engine whose cases have these words."""
    rows = {}
    for index, word in enumerate(words):
        name = f"graphs/{index}"
        raised = "DeviceLost" if word == "lost" else ""
        word = "wrong" if word == "lost" else word
        rows[name] = not_run_row(name) | {"word": word, "raised": raised}
    events = engine_fields.pop("events", [])
    is_open = bool(words)
    return EngineOutcome(
        SmokeEngine(device, **engine_fields),
        rows,
        events,
        is_open=is_open,
        is_done=True,
    )


def exit_code(*outcomes: EngineOutcome, required: tuple[str, ...] = ()) -> int:
    request = ReportRequest("quick", "", required, "", {})
    document_code: int = build_report(request, outcomes, 1.0)["exit_code"]
    return document_code


GOOD = make_outcome("cpu", "right", "refused")
BAD = make_outcome("vulkan", "right", "wrong", adapter="llvmpipe", at=0)
MISSING = make_outcome("cuda", missing="no NVIDIA driver")
LOST = make_outcome("vulkan", "right", "lost", events=[("lost", "it went away")])
UNOPENED = make_outcome("torch-cpu", events=[("wrong", "cannot be opened: too old")])
HUNG = make_outcome("vulkan", "right", events=[("hung", "no answer within 60 s")])


@pytest.mark.parametrize(
    ("outcomes", "required", "expected"),
    [
        ((GOOD,), (), 0),
        ((GOOD, MISSING), (), 0),
        ((GOOD, MISSING), ("cpu",), 0),
        ((GOOD, MISSING), ("cpu", "cuda"), 4),
        ((GOOD,), ("vulkan",), 4),
        ((GOOD, BAD), (), 1),
        ((GOOD, BAD), ("cuda",), 1),
        ((GOOD, HUNG), (), 1),
        ((GOOD, LOST), (), 75),
        ((GOOD, UNOPENED), (), 1),
        ((GOOD, LOST), ("cuda",), 75),
        ((BAD, LOST), (), 1),
        ((MISSING,), (), 3),
        ((MISSING,), ("cuda",), 4),
        ((make_outcome("cpu", "refused"),), (), 3),
        ((make_outcome("cpu", "refused"),), ("cpu",), 4),
        ((), (), 3),
    ],
)
def test_the_exit_code_fails_closed(
    outcomes: tuple[EngineOutcome, ...], required: tuple[str, ...], expected: int
) -> None:
    assert exit_code(*outcomes, required=required) == expected


def test_an_interrupted_run_is_partial() -> None:
    run_document = build_report(REQUEST, [GOOD], 1.0, is_partial=True)
    assert (run_document["partial"], run_document["exit_code"]) == (True, 130)


def test_an_engine_that_opens_and_loses_its_device_is_lost_not_wrong() -> None:
    run_document = build_report(REQUEST, [LOST, BAD, MISSING], 1.0)
    assert [engine["word"] for engine in run_document["engines"]] == [
        "lost",
        "wrong",
        "missing",
    ]
    assert run_document["engines"][2]["why"] == "no NVIDIA driver"
    assert run_document["engines"][1]["counts"]["wrong"] == 1


def test_the_disagreeing_engine_is_named() -> None:
    """One engine of three disagrees; where all are wrong, the reference is named."""
    three = [
        make_outcome("cpu", "right"),
        make_outcome("gpu", "wrong"),
        make_outcome("mlx", "right"),
    ]
    (disagreement,) = build_report(REQUEST, three, 1.0)["apart"]
    assert (disagreement["case"], disagreement["engines"], disagreement["of"]) == (
        "graphs/0",
        ["gpu"],
        3,
    )
    all_wrong = [make_outcome("cpu", "wrong"), make_outcome("gpu", "wrong")]
    (disagreement,) = build_report(REQUEST, all_wrong, 1.0)["apart"]
    assert disagreement["engines"] == ["NumPy in float64"]
    assert build_report(REQUEST, [GOOD, GOOD], 1.0)["apart"] == []


def test_the_document_is_json() -> None:
    run_document = build_report(REQUEST, [GOOD, BAD, MISSING], 1.0)
    assert json.loads(json.dumps(run_document, allow_nan=False)) == run_document
    assert run_document["schema"] == "rlxweb.smoke/1"
    values = [float("nan"), float("-inf"), 2.5]
    assert [*map(json_number, values)] == ["nan", "-inf", 2.5]


@pytest.mark.parametrize(
    ("name", "device", "adapter", "expected"),
    [
        ("vulkan", "vulkan", "llvmpipe", True),
        ("vulkan:PIPE", "vulkan", "llvmpipe", True),
        ("vulkan:swift", "vulkan", "llvmpipe", False),
        ("gpu", "opengl", "llvmpipe", True),
        ("gpu", "cuda", "GTX", False),
        ("opengl", "vulkan", "llvmpipe", False),
    ],
)
def test_names_match_devices_and_adapters(
    name: str, device: str, adapter: str, expected: bool
) -> None:
    assert matches_engine(name, device, adapter) is expected


def test_a_wrong_case_is_described_with_its_largest_error() -> None:
    """NaN and infinity have no error that could be the largest."""
    first = {"at": [1, 2], "got": 0.25, "want": 0.5}
    row = make_row("samples/exp/0", "wrong", max_error=0.25, first=first)
    described = describe_wrong_case(row)
    assert described.endswith("expected 0.5, got 0.25; the largest error is 0.25")
    for value in ("nan", "-inf"):
        row = make_row("samples/exp/0", "wrong", first=first | {"want": value})
        assert describe_wrong_case(row).endswith(f"expected {value}, got 0.25")
