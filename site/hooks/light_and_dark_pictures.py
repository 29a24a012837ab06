"""Pictures drawn by the programs of pages, for the light and the dark theme.

They stand in site/pictures/shown, put there by `site/snippets.py`, drawn on light
paper. The colours of their lines are seen on both; paper, inks and grid are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from rlxweb.plot.theme import DARK_PALETTE, LIGHT_PALETTE

PICTURES = Path(__file__).resolve().parents[1] / "pictures" / "shown"
FOLDER = "img/shown"


def files() -> Iterator[tuple[str, str]]:
    """Yield path in the manual and SVG of every picture, light and dark."""
    for path in sorted(PICTURES.glob("*.svg")):
        svg = path.read_text(encoding="utf-8")
        yield f"{FOLDER}/{path.name}", svg
        yield f"{FOLDER}/{path.stem}-dark.svg", dark_picture(svg)


def dark_picture(svg: str) -> str:
    """Return the picture with dark background and light ink; black is replaced too,
    matplotlib's default.
    """
    _, ink, _, _ = LIGHT_PALETTE
    if ink not in svg:
        svg = svg.replace("#000000", ink).replace("<svg ", f'<svg fill="{ink}" ', 1)
    for light, dark in zip(LIGHT_PALETTE, DARK_PALETTE, strict=True):
        svg = svg.replace(light, dark)
    return svg


def picture(arguments: str) -> str:
    """Return the picture of `NAME.svg CAPTION` as a figure of a page one folder
    deep.
    """
    name, caption = arguments.split(" ", 1)
    if not (PICTURES / name).is_file():
        raise ValueError(
            f"the picture {name} does not exist: run site/snippets.py with the page"
        )
    stem, words = name.removesuffix(".svg"), escape(caption)
    light = f"![{words}](../{FOLDER}/{stem}.svg#only-light)"
    dark = f"![{words}](../{FOLDER}/{stem}-dark.svg#only-dark)"
    return (
        '<figure class="rlx-figure rlx-shown" markdown>\n'
        f"{light}{dark}\n<figcaption>{words}</figcaption>\n</figure>"
    )
