"""The document of a run: words, counts, who stands apart, and the exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlxweb.smoke.answers import blank, number
from rlxweb.smoke.engine import Engine
from rlxweb.smoke.report import Asked, document, fits
from rlxweb.smoke.run import Outcome

ASKED = Asked("quick", "", (), "2026-01-01T00:00:00+00:00", {"rlxweb": "0"})


def outcome(device: str, *words: str, **more: Any) -> Outcome:
    """An engine whose cases have these words."""
    rows = {}
    for at, word in enumerate(words):
        name = f"graphs/{at}"
        raised = "DeviceLost" if word == "lost" else ""
        word = "wrong" if word == "lost" else word
        rows[name] = blank(name) | {"word": word, "raised": raised}
    events = more.pop("events", [])
    is_open = bool(words)
    return Outcome(Engine(device, **more), rows, events, is_open=is_open, is_done=True)


def code(*outcomes: Outcome, required: tuple[str, ...] = ()) -> int:
    asked = Asked("quick", "", required, "", {})
    found: int = document(asked, outcomes, 1.0)["exit_code"]
    return found


GOOD = outcome("cpu", "right", "refused")
BAD = outcome("vulkan", "right", "wrong", adapter="llvmpipe", at=0)
GONE = outcome("cuda", missing="no NVIDIA driver")
LOST = outcome("vulkan", "right", "lost", events=[("lost", "it went away")])
SHUT = outcome("torch-cpu", events=[("wrong", "it cannot be opened: too old")])
HUNG = outcome("vulkan", "right", events=[("hung", "no answer within 60 s")])


@pytest.mark.parametrize(
    ("outcomes", "required", "wanted"),
    [
        ((GOOD,), (), 0),
        ((GOOD, GONE), (), 0),
        ((GOOD, GONE), ("cpu",), 0),
        ((GOOD, GONE), ("cpu", "cuda"), 4),
        ((GOOD,), ("vulkan",), 4),
        ((GOOD, BAD), (), 1),
        ((GOOD, BAD), ("cuda",), 1),
        ((GOOD, HUNG), (), 1),
        ((GOOD, LOST), (), 75),
        ((GOOD, SHUT), (), 1),
        ((GOOD, LOST), ("cuda",), 75),
        ((BAD, LOST), (), 1),
        ((GONE,), (), 3),
        ((GONE,), ("cuda",), 4),
        ((outcome("cpu", "refused"),), (), 3),
        ((outcome("cpu", "refused"),), ("cpu",), 4),
        ((), (), 3),
    ],
)
def test_the_exit_code_fails_closed(
    outcomes: tuple[Outcome, ...], required: tuple[str, ...], wanted: int
) -> None:
    assert code(*outcomes, required=required) == wanted


def test_a_run_that_was_stopped_is_partial() -> None:
    made = document(ASKED, [GOOD], 1.0, is_partial=True)
    assert (made["partial"], made["exit_code"]) == (True, 130)


def test_an_engine_that_opens_and_loses_its_device_is_lost_not_wrong() -> None:
    made = document(ASKED, [LOST, BAD, GONE], 1.0)
    assert [one["word"] for one in made["engines"]] == ["lost", "wrong", "missing"]
    assert made["engines"][2]["why"] == "no NVIDIA driver"
    assert made["engines"][1]["counts"]["wrong"] == 1


def test_who_stands_apart_is_named() -> None:
    """One of three stands apart; where all are wrong it is the judge who does."""
    three = [outcome("cpu", "right"), outcome("gpu", "wrong"), outcome("mlx", "right")]
    (one,) = document(ASKED, three, 1.0)["apart"]
    assert (one["case"], one["engines"], one["of"]) == ("graphs/0", ["gpu"], 3)
    all_wrong = [outcome("cpu", "wrong"), outcome("gpu", "wrong")]
    (one,) = document(ASKED, all_wrong, 1.0)["apart"]
    assert one["engines"] == ["NumPy in float64"]
    assert document(ASKED, [GOOD, GOOD], 1.0)["apart"] == []


def test_the_document_is_json() -> None:
    made = document(ASKED, [GOOD, BAD, GONE], 1.0)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["schema"] == "rlxweb.smoke/1"
    values = [float("nan"), float("-inf"), 2.5]
    assert [*map(number, values)] == ["nan", "-inf", 2.5]


@pytest.mark.parametrize(
    ("name", "device", "adapter", "wanted"),
    [
        ("vulkan", "vulkan", "llvmpipe", True),
        ("vulkan:PIPE", "vulkan", "llvmpipe", True),
        ("vulkan:swift", "vulkan", "llvmpipe", False),
        ("gpu", "opengl", "llvmpipe", True),
        ("gpu", "cuda", "GTX", False),
        ("opengl", "vulkan", "llvmpipe", False),
    ],
)
def test_which_engines_a_name_means(
    name: str, device: str, adapter: str, wanted: bool
) -> None:
    assert fits(name, device, adapter) is wanted
