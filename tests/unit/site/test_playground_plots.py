"""What plot() and heat() of the playground send to the page, and what they refuse."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PLOTS = Path(__file__).resolve().parents[3] / "site/demo/playground/plots.py"


@pytest.fixture
def sent() -> list[Any]:
    """What was posted."""
    return []


@pytest.fixture
def names(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of plots.py, run as the Worker runs it."""
    monkeypatch.setitem(sys.modules, "playground", None)
    found: dict[str, Any] = {"post": lambda *args: sent.append(args), "np": np}
    exec(PLOTS.read_text("utf-8"), found)
    return found


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("plot([1, 2], [3])", "x has (2,), a line has (1,)"),
        ("plot([])", "there is nothing to draw"),
        ("plot([1j, 2])", "it draws real numbers"),
        ("plot(np.zeros((2, 2, 2)))", "a line has 1 axis, or 2 for many"),
        ("plot([1, 2], marks=([1], [2, 3]))", "two sequences of one length"),
        ("plot([1, 2], log='z')", "it is '', 'x', 'y' or 'xy'"),
        ("heat([1, 2])", "it takes 2 axes"),
        ("heat(np.zeros((0, 3)))", "with something in them"),
        ("heat(np.zeros((1001, 1000)))", "1,001,000 values are too many"),
    ],
)
def test_wrong_plots_are_told(
    names: dict[str, Any], sent: list[Any], call: str, words: str
) -> None:
    """Wrong plots are told before anything is sent."""
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        eval(call, names)
    assert sent == []


def test_lines_go_as_float32_over_one_x(names: dict[str, Any], sent: list[Any]) -> None:
    """A line alone counts from 0; the rows of a matrix are lines; marks go last."""
    names["plot"]([5, 6, 7])
    names["plot"]([1, 2], [[3, 4], [5, 6]], marks=([1], [9]), labels=["a", "b"])
    (first, arrays), (second, more) = sent
    assert first["plot"]["lines"] == 1
    np.testing.assert_array_equal(arrays, [[0, 1, 2], [5, 6, 7]])
    assert all(array.dtype == np.float32 for array in arrays + more)
    assert (second["plot"]["lines"], second["plot"]["marks"]) == (2, True)
    assert [array.tolist() for array in more] == [[1, 2], [3, 4], [5, 6], [1], [9]]


def test_long_lines_are_thinned(names: dict[str, Any], sent: list[Any]) -> None:
    """A canvas has no use for a million points."""
    names["plot"](np.arange(1_000_000))
    ((_, arrays),) = sent
    assert len(arrays[0]) == len(arrays[1]) == 20_000
    assert arrays[1][1] == 50


def test_a_heat_map_has_its_axes(names: dict[str, Any], sent: list[Any]) -> None:
    """A heat map's axes are indices unless they are given."""
    names["heat"]([[1, 2, 3], [4, 5, 6]], y=(0, 50))
    ((about, (values,)),) = sent
    assert about["heat"]["x"] == [0.0, 2.0]
    assert about["heat"]["y"] == [0.0, 50.0]
    assert (about["heat"]["rows"], about["heat"]["columns"]) == (2, 3)
    assert values.flags.c_contiguous
