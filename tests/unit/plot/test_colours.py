"""The colours of lines are told apart by all eyes, and read on light and on dark."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from rlxweb.plot.theme import settings
from rlxweb.results.svg import COLOURS

SHARED_CSS = Path(__file__).parents[3] / "site" / "demo" / "shared.css"
# Machado, Oliveira & Fernandes 2009, severity 1: what is seen without one kind of cone.
SEEN_BY = {
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
LEAST = 0.09
"""In Oklab, where 0.02 is just seen side by side."""


def light_of(hexes: tuple[str, ...]) -> np.ndarray:
    """Linear light (N, 3) of sRGB colours."""
    share = [[int(one[at : at + 2], 16) / 255 for at in (1, 3, 5)] for one in hexes]
    own = np.array(share)
    return np.where(own <= 0.04045, own / 12.92, ((own + 0.055) / 1.055) ** 2.4)


def oklab(light: np.ndarray) -> np.ndarray:
    """Ottosson 2020."""
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
    low, high = sorted(light_of((a, b)) @ (0.2126, 0.7152, 0.0722))
    return float((high + 0.05) / (low + 0.05))


@pytest.mark.parametrize("eyes", SEEN_BY)
def test_any_two_colours_are_told_apart(eyes: str) -> None:
    seen = oklab(light_of(COLOURS) @ SEEN_BY[eyes].T)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)
    apart[np.diag_indices(len(COLOURS))] = np.inf
    assert apart.min() >= LEAST


def test_the_measure_sees_what_eyes_do_not() -> None:
    """Red and green of one lightness, which the test above has to refuse."""
    seen = oklab(light_of(("#c0504d", "#7c8e3f")) @ SEEN_BY["deuteranopes"].T)
    assert np.linalg.norm(seen[0] - seen[1]) < LEAST


@pytest.mark.parametrize("dark", [False, True])
def test_every_colour_is_seen_on_its_ground(dark: bool) -> None:
    """Lines 3:1, words 4.5:1, as WCAG asks of graphics and of text."""
    look = settings(dark)
    ground = look["axes.facecolor"]
    assert min(contrast(one, ground) for one in COLOURS) >= 3.0
    for words in ("text.color", "axes.labelcolor", "xtick.color"):
        assert contrast(look[words], ground) >= 4.5


def test_the_site_has_the_same_colours() -> None:
    """The site has the colours of lines, ground and words, on light and on dark."""
    css = SHARED_CSS.read_text("utf-8")
    blocks = re.findall(r"color-scheme: (light|dark);(.*?)\}", css, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["light", "dark", "dark"]
    for kind, block in blocks:
        value = dict(re.findall(r"--([\w-]+): (#\w+);", block))
        series = tuple(value[f"series-{n}"] for n in range(1, 9))
        assert series == COLOURS
        look = settings(kind == "dark")
        assert look["text.color"] == value["text"]
        assert look["axes.labelcolor"] == value["muted"]
        assert look["grid.color"] == value["line"]
