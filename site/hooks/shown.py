"""Pictures that a page's own programs drew, for light pages and for dark ones.

They stand in site/pictures/shown, put there by `site/snippets.py`, drawn on light
paper. The colours of their lines are seen on both; paper, inks and grid are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from rlxweb.plot.theme import DARK, LIGHT

KEPT = Path(__file__).resolve().parents[1] / "pictures" / "shown"
FOLDER = "img/shown"


def files() -> Iterator[tuple[str, str]]:
    """(path in the manual, SVG) of every picture, twice."""
    for path in sorted(KEPT.glob("*.svg")):
        svg = path.read_text(encoding="utf-8")
        yield f"{FOLDER}/{path.name}", svg
        yield f"{FOLDER}/{path.stem}-dark.svg", dark_of(svg)


def dark_of(svg: str) -> str:
    """The picture on dark paper; of matplotlib's own look too, which is black."""
    _, ink, _, _ = LIGHT
    if ink not in svg:
        svg = svg.replace("#000000", ink).replace("<svg ", f'<svg fill="{ink}" ', 1)
    for light, instead in zip(LIGHT, DARK, strict=True):
        svg = svg.replace(light, instead)
    return svg


def picture(arguments: str) -> str:
    """NAME.svg CAPTION as a figure of a page one folder deep."""
    name, caption = arguments.split(" ", 1)
    if not (KEPT / name).is_file():
        raise ValueError(f"no picture {name}: run site/snippets.py with the page")
    stem, words = name.removesuffix(".svg"), escape(caption)
    light = f"![{words}](../{FOLDER}/{stem}.svg#only-light)"
    dark = f"![{words}](../{FOLDER}/{stem}-dark.svg#only-dark)"
    return (
        '<figure class="rlx-figure rlx-shown" markdown>\n'
        f"{light}{dark}\n<figcaption>{words}</figcaption>\n</figure>"
    )
