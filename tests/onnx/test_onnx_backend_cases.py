"""ONNX's own test cases: each is right, or listed with the reason why it is refused.

A case that starts to pass, one that is refused for another reason, and one that comes
out wrong all fail; `python -m tests.onnx.refused_cases` writes the lists anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from tests.conftest import ADAPTERS, require_engine
from tests.onnx.onnx_backend_cases import OnnxCase, load_cases
from tests.onnx.refused_cases import describe_disagreement, expected_reasons

CHUNKS = 12
ENGINES = ("cpu", *ADAPTERS)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def case_chunk(index: int) -> Iterator[OnnxCase]:
    """Yield every twelfth case, so that all chunks take about the same time."""
    yield from load_cases()[index::CHUNKS]


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.parametrize("chunk_index", range(CHUNKS))
@pytest.mark.parametrize("engine", ENGINES)
def test_case_is_right_or_refused_for_the_listed_reason(
    engine: str, chunk_index: int, request: pytest.FixtureRequest, is_full_tier: bool
) -> None:
    """Every case gives what ONNX expects, or is refused for its listed reason.

    On an adapter the default tier takes each tenth case: the reader of models and the
    ops of NumPy are tested by all of them.
    """
    if engine != "cpu":
        require_engine(engine, request.config)
    reasons = expected_reasons(engine)
    step = 1 if is_full_tier or engine == "cpu" else 10
    selected = islice(case_chunk(chunk_index), chunk_index % step, None, step)
    disagreements = [describe_disagreement(case, engine, reasons) for case in selected]
    assert [disagreement for disagreement in disagreements if disagreement] == []


def test_listed_cases_exist() -> None:
    """A case that a newer onnx no longer has is not listed."""
    names = {case.name for case in load_cases()}
    assert set(expected_reasons("opengl")) <= names
