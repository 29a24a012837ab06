"""Line colours can be told apart with every colour vision, and read on light and on
dark.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from rlxweb.plot.theme import style_settings
from rlxweb.results.svg_charts import COLOURS

SHARED_CSS = Path(__file__).parents[3] / "site" / "demo" / "shared.css"
# Machado, Oliveira & Fernandes 2009, severity 1: what is seen without one kind of cone.
VISION_MATRICES = {
    "all": np.eye(3),
    "protanopes": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopes": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopes": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
MIN_DISTANCE = 0.09
"""Minimum distance in Oklab, where 0.02 is just visible side by side."""


def linear_light(hexes: tuple[str, ...]) -> np.ndarray:
    """Linear light (N, 3) of sRGB colours."""
    channels = [
        [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        for colour in hexes
    ]
    srgb = np.array(channels)
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def oklab(light: np.ndarray) -> np.ndarray:
    """Convert linear light to Oklab (Ottosson 2020)."""
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    out = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.cbrt(np.clip(light, 0, 1) @ cones.T) @ out.T


def contrast(a: str, b: str) -> float:
    """The contrast of two colours as WCAG defines it."""
    low, high = sorted(linear_light((a, b)) @ (0.2126, 0.7152, 0.0722))
    return float((high + 0.05) / (low + 0.05))


@pytest.mark.parametrize("eyes", VISION_MATRICES)
def test_any_two_colours_are_distinguishable(eyes: str) -> None:
    perceived = oklab(linear_light(COLOURS) @ VISION_MATRICES[eyes].T)
    distances = np.linalg.norm(perceived[:, None] - perceived[None], axis=-1)
    distances[np.diag_indices(len(COLOURS))] = np.inf
    assert distances.min() >= MIN_DISTANCE


def test_similar_red_and_green_are_detected() -> None:
    """Red and green of one lightness fall below the minimum distance."""
    perceived = oklab(
        linear_light(("#c0504d", "#7c8e3f")) @ VISION_MATRICES["deuteranopes"].T
    )
    assert np.linalg.norm(perceived[0] - perceived[1]) < MIN_DISTANCE


@pytest.mark.parametrize("dark", [False, True])
def test_every_colour_contrasts_with_its_background(dark: bool) -> None:
    """Lines have contrast 3:1 and text 4.5:1, as WCAG requires."""
    theme = style_settings(dark)
    background = theme["axes.facecolor"]
    assert min(contrast(colour, background) for colour in COLOURS) >= 3.0
    for text_key in ("text.color", "axes.labelcolor", "xtick.color"):
        assert contrast(theme[text_key], background) >= 4.5


def test_the_site_has_the_same_colours() -> None:
    """The site has the colours of lines, ground and words, on light and on dark."""
    css = SHARED_CSS.read_text("utf-8")
    blocks = re.findall(r"color-scheme: (light|dark);(.*?)\}", css, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["light", "dark", "dark"]
    for kind, block in blocks:
        value = dict(re.findall(r"--([\w-]+): (#\w+);", block))
        series = tuple(value[f"series-{n}"] for n in range(1, 9))
        assert series == COLOURS
        theme = style_settings(kind == "dark")
        assert theme["text.color"] == value["text"]
        assert theme["axes.labelcolor"] == value["muted"]
        assert theme["grid.color"] == value["line"]
