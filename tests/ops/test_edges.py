"""The edges of arithmetic: what is promised holds, and the manual says what is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlxweb.backends.protocol import Backend
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.smoke.edge_questions import EDGES
from rlxweb.smoke.edges import edge_cases, in_words
from rlxweb.smoke.verdict import check_case
from tests.agreement import ARRAYS, engine
from tests.shown_edges import shown_engines, shown_of

CASES = tuple(edge_cases(EDGES))


def answers(backend: Backend) -> dict[str, str]:
    """Answers by case; what is promised must hold."""
    found = {case.name: drive(check_case(case, backend)) for case in CASES}
    assert [f"{n}: {v.why}" for n, v in found.items() if v.word == "wrong"] == []
    return {n: v.agreement.answer if v.agreement else v.word for n, v in found.items()}


def check_shown(backend: Backend, given: dict[str, str]) -> None:
    """What the manual shows of this adapter and driver is what it answers."""
    shown = shown_of("here", backend.adapter, backend.driver)
    assert shown in (None, given)


def test_numpy_keeps_the_promise_and_the_manual_shows_it() -> None:
    """Any version of NumPy has every type, and answers as the manual shows."""
    given = answers(engine(None).backend)
    assert "refused" not in given.values()
    (numpy,) = (
        one["answers"]
        for one in shown_engines()
        if (one["device"], one["kind"]) == ("cpu", "here")
    )
    assert numpy == given


def test_a_tab_and_webassembly_have_columns_of_their_own() -> None:
    """A tab and WebAssembly have columns in the manual, with every answer."""
    engines = shown_engines()
    assert {one["kind"] for one in engines} == {"here", "browser", "wasm"}
    for one in engines:
        assert one["answers"].keys() == {case.name for case in CASES}


@pytest.mark.requires_wgpu
def test_an_adapter_keeps_the_promise(adapter: Want) -> None:
    backend = engine(adapter).backend
    check_shown(backend, answers(backend))


@pytest.mark.parametrize("library", ARRAYS)
def test_an_array_library_keeps_the_promise(library: str) -> None:
    backend = engine(library).backend
    check_shown(backend, answers(backend))


def test_what_is_promised_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another answer is wrong at an edge where one is promised, and right elsewhere."""
    cpu = engine(None).backend

    def spoil(array: Any) -> Any:
        changed = np.atleast_1d(np.array(array))
        changed[0] = ~changed[0] if changed.dtype == bool else 41
        return changed.reshape(np.shape(array))

    for edge, case in zip(EDGES, CASES, strict=True):
        found = drive(check_case(case, cpu, spoil))
        assert found.word == ("wrong" if edge.promised else "right"), case.note
        assert found.agreement is not None
        assert found.agreement.answer


def test_questions_have_names_of_their_own() -> None:
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
def test_answers_in_words(values: Any, words: str) -> None:
    assert in_words(values) == words
