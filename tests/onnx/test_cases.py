"""ONNX's own cases: each is right, or is listed with the reason why it is refused.

A case that starts to pass, one that is refused for another reason, and one that comes
out wrong all fail; `python -m tests.onnx.left_out` writes the lists anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from tests.conftest import ADAPTERS, demand
from tests.onnx.cases import Case, cases
from tests.onnx.left_out import complaint, expected

CHUNKS = 12
ENGINES = ("cpu", *ADAPTERS)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def chunk(at: int) -> Iterator[Case]:
    """Every twelfth case: one op's cases stand together, and chunks take alike long."""
    yield from cases()[at::CHUNKS]


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.parametrize("at", range(CHUNKS))
@pytest.mark.parametrize("engine", ENGINES)
def test_every_case_is_right_or_refused_for_the_listed_reason(
    engine: str, at: int, request: pytest.FixtureRequest, is_full_tier: bool
) -> None:
    """Every case gives what ONNX wants, or is refused for its listed reason.

    On an adapter the default tier takes each tenth case: the reader of models and the
    ops of NumPy are tested by all of them.
    """
    if engine != "cpu":
        demand(engine, request.config)
    reasons = expected(engine)
    step = 1 if is_full_tier or engine == "cpu" else 10
    taken = islice(chunk(at), at % step, None, step)
    said = [complaint(case, engine, reasons) for case in taken]
    assert [one for one in said if one] == []


def test_the_lists_name_cases_that_there_are() -> None:
    """A case that a newer onnx no longer has is not listed."""
    names = {case.name for case in cases()}
    assert set(expected("opengl")) <= names
