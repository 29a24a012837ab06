"""Messages that plot() and heat() of the playground post, and calls that they
refuse.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PLOTS = Path(__file__).resolve().parents[3] / "site/demo/playground/plots.py"


@pytest.fixture
def posted() -> list[Any]:
    """Return the list that collects posted messages."""
    return []


@pytest.fixture
def plot_functions(
    posted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Return the names of plots.py, run as the Worker runs it."""
    monkeypatch.setitem(sys.modules, "playground", None)
    namespace: dict[str, Any] = {"post": lambda *args: posted.append(args), "np": np}
    exec(PLOTS.read_text("utf-8"), namespace)
    return namespace


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("plot([1, 2], [3])", "x has shape (2,), y has shape (1,)"),
        ("plot([])", "the arrays are empty"),
        ("plot([1j, 2])", "expected real numbers, got complex128"),
        ("plot(np.zeros((2, 2, 2)))", "y must have 1 axis, or 2 (one line per row)"),
        ("plot([1, 2], marks=([1], [2, 3]))", "two sequences of the same length"),
        ("plot([1, 2], log='z')", "it must be '', 'x', 'y' or 'xy'"),
        ("heat([1, 2])", "expected a non-empty array with 2 axes, got (2,)"),
        (
            "heat(np.zeros((0, 3)))",
            "expected a non-empty array with 2 axes, got (0, 3)",
        ),
        ("heat(np.zeros((1001, 1000)))", "the array has 1,001,000 values; at most"),
    ],
)
def test_invalid_plots_are_refused(
    plot_functions: dict[str, Any], posted: list[Any], call: str, message: str
) -> None:
    """Invalid plots are refused before anything is posted."""
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        eval(call, plot_functions)
    assert posted == []


def test_lines_are_posted_as_float32_with_a_common_x(
    plot_functions: dict[str, Any], posted: list[Any]
) -> None:
    """A single line has x from 0 on; rows of a matrix are lines; marks come last."""
    plot_functions["plot"]([5, 6, 7])
    plot_functions["plot"](
        [1, 2], [[3, 4], [5, 6]], marks=([1], [9]), labels=["a", "b"]
    )
    (first, arrays), (second, second_arrays) = posted
    assert first["plot"]["lines"] == 1
    np.testing.assert_array_equal(arrays, [[0, 1, 2], [5, 6, 7]])
    assert all(array.dtype == np.float32 for array in arrays + second_arrays)
    assert (second["plot"]["lines"], second["plot"]["marks"]) == (2, True)
    assert [array.tolist() for array in second_arrays] == [
        [1, 2],
        [3, 4],
        [5, 6],
        [1],
        [9],
    ]


def test_long_lines_are_downsampled(
    plot_functions: dict[str, Any], posted: list[Any]
) -> None:
    """A line of a million points is reduced to 20,000."""
    plot_functions["plot"](np.arange(1_000_000))
    ((_, arrays),) = posted
    assert len(arrays[0]) == len(arrays[1]) == 20_000
    assert arrays[1][1] == 50


def test_a_heat_map_has_its_axes(
    plot_functions: dict[str, Any], posted: list[Any]
) -> None:
    """The axes of a heat map are indices unless they are given."""
    plot_functions["heat"]([[1, 2, 3], [4, 5, 6]], y=(0, 50))
    ((message, (values,)),) = posted
    assert message["heat"]["x"] == [0.0, 2.0]
    assert message["heat"]["y"] == [0.0, 50.0]
    assert (message["heat"]["rows"], message["heat"]["columns"]) == (2, 3)
    assert values.flags.c_contiguous
