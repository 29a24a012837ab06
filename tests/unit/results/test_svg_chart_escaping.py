"""SVG charts: names from user data appear as text, never as markup."""

from __future__ import annotations

import numpy as np

from rlxweb.results.svg_charts import ChartLine, SvgAxes, svg_line_chart, svg_share_bar

NAME = "<script>&"


def test_names_of_channels_and_axes_are_never_markup() -> None:
    x = np.arange(1.0, 9.0)
    axes = SvgAxes((0.0, 1.0), (0.0, 1.0)).axis_elements(NAME, NAME)
    for svg in (
        svg_line_chart([ChartLine(NAME, x, x)], NAME),
        svg_share_bar([NAME, "b"], [0.7, 0.3]),
    ):
        assert "<script" not in svg
        assert "&lt;script&gt;&amp;" in svg
    assert "".join(axes).count("&lt;script&gt;&amp;") == 2
    assert "<script" not in "".join(axes)
