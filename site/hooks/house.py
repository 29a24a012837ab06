"""The house as a picture and a table: its rooms, floor by floor, drawn from the code.

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

from docstrings import prose
from drawing import figure, picture, text

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rlxweb"

_WIDTH, _ROOM_HEIGHT, _GAP = 720, 44, 8
# The longest name of a short room fits in.
_LEAST = 98.0


@dataclass(frozen=True, slots=True)
class Room:
    """A folder, or a file on the ground or the roof: its lines and first sentence."""

    name: str
    lines: int
    files: int
    says: str


def house() -> str:
    """The picture, then what each room is for."""
    floors = [
        [_room(name) for name in floor if name != "__main__"]
        for floor in runpy.run_path(str(ROOT / "tests/unit/floors.py"))["FLOORS"]
    ]
    floors = [floor for floor in floors if floor]
    rows = ["| room | files | lines | what it is for |", "|---|---:|---:|---|"]
    rows += [
        f"| `{room.name}` | {room.files} | {room.lines:,} | {prose(room.says)} |"
        for floor in reversed(floors)
        for room in floor
    ]
    return "\n\n".join([_picture(floors), "\n".join(rows)])


def _room(name: str) -> Room:
    folder, file = PACKAGE / name, PACKAGE / f"{name or '__init__'}.py"
    paths = [file] if file.is_file() else sorted(folder.rglob("*.py"))
    head = file if file.is_file() else folder / "__init__.py"
    doc = ast.get_docstring(ast.parse(head.read_text("utf-8"))) or ""
    lines = sum(len(p.read_text("utf-8").splitlines()) for p in paths)
    first = doc.split("\n\n")[0].replace("\n", " ")
    return Room(name or "rlxweb", lines, len(paths), first)


def _picture(floors: list[list[Room]]) -> str:
    parts: list[str] = []
    for at, floor in enumerate(reversed(floors)):
        parts += _floor(floor, at * (_ROOM_HEIGHT + _GAP))
    height = len(floors) * (_ROOM_HEIGHT + _GAP)
    says = "The rooms of rlxweb on their floors; every import points down"
    return figure(
        picture(_WIDTH, height, says, parts),
        "Rooms are as wide as they are long to read. A room imports from the floors "
        "below it and from no other.",
    )


def _floor(rooms: list[Room], top: float) -> Iterator[str]:
    spare = _WIDTH - _GAP * (len(rooms) - 1) - _LEAST * len(rooms)
    whole = max(6_000, sum(room.lines for room in rooms))
    left = 0.0
    for room in rooms:
        width = _LEAST + spare * room.lines / whole
        yield (
            f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{_ROOM_HEIGHT}" rx="4" class="rlx-box">'
            f"<title>{escape(room.says)}</title></rect>"
        )
        yield text(left + 10, top + 19, room.name, "rlx-label rlx-strong")
        yield text(left + 10, top + 36, f"{room.lines:,}", "rlx-quiet")
        left += width + _GAP
