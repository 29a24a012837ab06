"""The demos draw levels in the same colours as all other plots."""

from __future__ import annotations

import re

import numpy as np

from rlxweb.plot.theme import SEQUENTIAL_COLORMAP
from tests.cli_runners import ROOT

DEMO = ROOT / "site" / "demo"


def test_levels_have_the_colours_of_the_library_s_map() -> None:
    """Levels have the map's colours at the page's ten stops."""
    import matplotlib

    text = (DEMO / "live" / "colours.js").read_text("utf-8")
    stops = re.search(r"const STOPS = \[(.*?)\];", text, re.DOTALL)
    assert stops is not None
    page_colours = np.array(re.findall(r"\[(\d+), (\d+), (\d+)\]", stops[1]), float)
    expected = (
        255
        * matplotlib.colormaps[SEQUENTIAL_COLORMAP](
            np.linspace(0, 1, len(page_colours))
        )[:, :3]
    )
    np.testing.assert_allclose(page_colours, expected, atol=2)
