"""Test edge cases of arithmetic: guarantees hold, and the manual shows the answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.engines.protocol import Engine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.smoke.edge_case_table import EDGE_CASES
from rlxweb.smoke.edge_cases import edge_cases, format_values
from rlxweb.smoke.verdict import check_case
from tests.documented_edge_cases import documented_answers, documented_engines
from tests.engines_under_test import ARRAY_LIBRARIES, engine

CASES = tuple(edge_cases(EDGE_CASES))


def edge_answers(engine: Engine) -> dict[str, str]:
    """Return the answers by case after checking that guaranteed answers hold."""
    verdicts = {case.name: run_blocking(check_case(case, engine)) for case in CASES}
    assert [
        f"{n}: {verdict.why}"
        for n, verdict in verdicts.items()
        if verdict.word == "wrong"
    ] == []
    return {
        n: verdict.comparison.answer if verdict.comparison else verdict.word
        for n, verdict in verdicts.items()
    }


def check_manual(engine: Engine, given_answers: dict[str, str]) -> None:
    """Check that the manual shows the answers of this adapter and driver."""
    identity = engine.identity
    manual_answers = documented_answers("here", identity.adapter, identity.driver)
    assert manual_answers in (None, given_answers)


def test_numpy_answers_match_the_manual() -> None:
    """Any version of NumPy has every type, and answers as the manual shows."""
    numpy_answers = edge_answers(engine(None).engine)
    assert "refused" not in numpy_answers.values()
    (manual_answers,) = (
        column["answers"]
        for column in documented_engines()
        if (column["device"], column["kind"]) == ("cpu", "here")
    )
    assert manual_answers == numpy_answers


def test_manual_has_browser_and_webassembly_columns() -> None:
    """The manual has browser and WebAssembly columns with every answer."""
    engines = documented_engines()
    assert {column["kind"] for column in engines} == {"here", "browser", "wasm"}
    for column in engines:
        assert column["answers"].keys() == {case.name for case in CASES}


@pytest.mark.requires_wgpu
def test_adapter_keeps_the_guarantees(adapter: AdapterRequest) -> None:
    webgpu_engine = engine(adapter).engine
    check_manual(webgpu_engine, edge_answers(webgpu_engine))


@pytest.mark.parametrize("library", ARRAY_LIBRARIES)
def test_array_library_keeps_the_guarantees(library: str) -> None:
    library_engine = engine(library).engine
    check_manual(library_engine, edge_answers(library_engine))


def test_guaranteed_answers_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A different answer is wrong where one is guaranteed, and right elsewhere."""
    cpu = engine(None).engine

    def spoil(array: Any) -> Any:
        changed = np.atleast_1d(np.array(array))
        changed[0] = ~changed[0] if changed.dtype == bool else 41
        return changed.reshape(np.shape(array))

    for edge, case in zip(EDGE_CASES, CASES, strict=True):
        verdict = run_blocking(check_case(case, cpu, spoil))
        assert verdict.word == ("wrong" if edge.is_guaranteed else "right"), case.note
        assert verdict.comparison is not None
        assert verdict.comparison.answer


def test_edge_cases_have_unique_names() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case.note for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([np.nan, -np.inf, -0.0, 0.0], np.float32), "nan, -inf, -0, 0"),
        (np.array([16777216, 1e-40, 0.1], np.float32), "16777216, 1e-40, 0.1"),
        (np.array([True, False]), "true, false"),
        (np.array([-(2**31)], np.int32), "-2147483648"),
    ],
)
def test_answer_formatting(values: Any, words: str) -> None:
    assert format_values(values) == words
