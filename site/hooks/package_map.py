"""Map of the package as a picture and a table, layer by layer, read from the code.

The floors are those that the tests hold the imports to; sizes and captions are read
from the package. Knows no room by name.
"""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from docstring_to_markdown import escape_markdown
from svg_drawing import figure, svg_image, text

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rlxweb"

_WIDTH, _BOX_HEIGHT, _GAP = 720, 44, 8
# The longest name of a short room fits in.
_MIN_WIDTH = 98.0


@dataclass(frozen=True, slots=True)
class PackagePart:
    """Folder of the package, or a file at its top: its size and the first sentence of
    its docstring.
    """

    name: str
    lines: int
    files: int
    summary: str


def package_map() -> str:
    """Return the picture, then a table of what each part is for."""
    layers = [
        [_read_part(name) for name in layer if name != "__main__"]
        for layer in runpy.run_path(str(ROOT / "tests/unit/import_layers.py"))["LAYERS"]
    ]
    layers = [layer for layer in layers if layer]
    rows = ["| package | files | lines | purpose |", "|---|---:|---:|---|"]
    rows += [
        f"| `{part.name}` | {part.files} | {part.lines:,} | "
        f"{escape_markdown(part.summary)} |"
        for layer in reversed(layers)
        for part in layer
    ]
    return "\n\n".join([_layers_chart(layers), "\n".join(rows)])


def _read_part(name: str) -> PackagePart:
    folder, file = PACKAGE / name, PACKAGE / f"{name or '__init__'}.py"
    paths = [file] if file.is_file() else sorted(folder.rglob("*.py"))
    doc_path = file if file.is_file() else folder / "__init__.py"
    doc = ast.get_docstring(ast.parse(doc_path.read_text("utf-8"))) or ""
    lines = sum(len(p.read_text("utf-8").splitlines()) for p in paths)
    summary = doc.split("\n\n")[0].replace("\n", " ")
    return PackagePart(name or "rlxweb", lines, len(paths), summary)


def _layers_chart(layers: list[list[PackagePart]]) -> str:
    parts: list[str] = []
    for index, layer in enumerate(reversed(layers)):
        parts += _layer_boxes(layer, index * (_BOX_HEIGHT + _GAP))
    height = len(layers) * (_BOX_HEIGHT + _GAP)
    alt_text = "The packages of rlxweb in layers; every import points down"
    return figure(
        svg_image(_WIDTH, height, alt_text, parts),
        "The width of a package shows its lines of code. A package imports only from "
        "the layers below it.",
    )


def _layer_boxes(layer_parts: list[PackagePart], top: float) -> Iterator[str]:
    spare_width = _WIDTH - _GAP * (len(layer_parts) - 1) - _MIN_WIDTH * len(layer_parts)
    full_lines = max(6_000, sum(part.lines for part in layer_parts))
    left = 0.0
    for part in layer_parts:
        width = _MIN_WIDTH + spare_width * part.lines / full_lines
        yield (
            f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{_BOX_HEIGHT}" rx="4" class="rlx-box">'
            f"<title>{escape(part.summary)}</title></rect>"
        )
        yield text(left + 10, top + 19, part.name, "rlx-label rlx-strong")
        yield text(left + 10, top + 36, f"{part.lines:,}", "rlx-quiet")
        left += width + _GAP
