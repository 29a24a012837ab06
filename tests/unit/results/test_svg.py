"""Pictures as SVG: whatever names a user's data has, they are text in it."""

from __future__ import annotations

import numpy as np

from rlxweb.results.svg import Frame, Line, bars, chart

NAME = "<script>&"


def test_names_of_channels_and_axes_are_never_markup() -> None:
    x = np.arange(1.0, 9.0)
    axes = Frame((0.0, 1.0), (0.0, 1.0)).axes(NAME, NAME)
    for picture in (chart([Line(NAME, x, x)], NAME), bars([NAME, "b"], [0.7, 0.3])):
        assert "<script" not in picture
        assert "&lt;script&gt;&amp;" in picture
    assert "".join(axes).count("&lt;script&gt;&amp;") == 2
    assert "<script" not in "".join(axes)
