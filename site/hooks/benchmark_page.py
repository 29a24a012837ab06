"""The measured numbers as tables and pictures, read from tests/benchmarks/results/.

Losing rows come first, and every number stands under its adapter.
Nothing is measured here. A results file is shown by its schema; one whose schema nobody
knows stops the build, so that no result is silently left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import band_section
import gpu_section
import picker_section
import scaling_section
import tab_section
from docstrings import prose
from drawing import plain
from ratio_picture import Ratio, ratio_picture

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "benchmarks" / "results"
Record = Mapping[str, Any]
_FEW = 2


def benchmarks() -> str:
    """Every results file, in the order of their names."""
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        family = str(record.get("schema", "")).rsplit("/", 1)[0]
        if family not in SECTIONS:
            raise ValueError(
                f"{path.name} has schema {record.get('schema')!r}; known are "
                f"{', '.join(SECTIONS)}: teach site/hooks/benchmark_page.py to show it"
            )
        parts.append(SECTIONS[family](record, path.name))
    return "\n\n".join(parts)


def _ops(record: Record, name: str) -> str:
    """Peers timed in turn in one process: a picture of the ratios, then all rows."""
    cells = [cell for cell in record["cells"] if cell["rows"]]
    parts = [
        f"## {_engines(cells)}",
        _machine(record, name),
        _ratios(cells),
        _goals(cells),
        "Every row of every job:",
        *(_cell(cell) for cell in cells),
    ]
    parts += [f"Wrong answers, so no times: {prose(why)}" for why in record["wrong"]]
    return "\n\n".join(parts)


def _engines(cells: Sequence[Record]) -> str:
    """The engines of our own rows, without versions, and those of the others if few."""

    def named(ours: bool) -> list[str]:
        rows = [row for cell in cells for row in cell["rows"] if row["ours"] is ours]
        return list(dict.fromkeys(row["engine"].split(" (")[0] for row in rows))

    ours = dict.fromkeys(name.split(" ")[0] for name in named(True))
    others = named(False)
    against = " and ".join(others) if len(others) <= _FEW else "other code"
    return f"{' and '.join(ours)} against {against}"


def _machine(record: Record, name: str) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if v)
    adapters = "; ".join(
        f"{one['name']}, {one['backend']}, {one['driver']}"
        for one in machine["adapters"]
    )
    return prose(
        f"{machine['system']}, {machine['processor']}, {machine['cores']} cores; "
        f"Python {machine['python']}, {versions}. Adapters: {adapters}. "
        f"{record['settings']['rounds']} rounds, medians; from `{name}`."
    )


def _compared(cells: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Every cell and goal of it: those that are missed first, the furthest on top."""
    every = [(cell, goal) for cell in cells for goal in cell["goals"]]
    return sorted(every, key=lambda pair: -pair[1]["ratio"] / pair[1]["limit"])


def _goals(cells: Sequence[Record]) -> str:
    """One row per comparison: our best against the best other code."""
    lines = [
        "| job | rlxweb | ms | other code | ms | ratio | goal |",
        "|---|---|---:|---|---:|---:|---|",
    ]
    for cell, goal in _compared(cells):
        times = {row["name"]: row["ms"] for row in cell["rows"]}
        met = "met" if goal["met"] else "**missed**"
        columns = (
            prose(cell["cell"]),
            _side(goal["ours"]),
            plain(times[goal["ours"]]),
            prose(goal["against"]),
            plain(times[goal["against"]]),
            f"{goal['ratio']:.2f}",
            f"≤ {goal['limit']:g}, {met}",
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def _cell(cell: Record) -> str:
    """All rows of one job, fastest first; our time as a multiple of each."""
    rows = sorted(cell["rows"], key=lambda row: row["ms"])
    # Those that a goal is set for.
    ours = [row["name"] for row in rows if row["name"] in rows[0]["ratio"]]
    heads = ["", "on", "ms", "spread", "first ms", *(f"{_side(n)} ÷ it" for n in ours)]
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (3 + len(ours))]
    for row in rows:
        label = f"**{row['name']}**" if row["ours"] else prose(row["name"])
        numbers = [plain(row["ms"]), f"{row['spread']:.0%}", plain(row["first_ms"])]
        ratios = [plain(row["ratio"][name]) for name in ours]
        engine = prose(row["engine"].split(" (")[0])
        lines.append(f"| {' | '.join([label, engine, *numbers, *ratios])} |")
    once = [prose(row["name"]) for row in rows if row["samples"] == 1]
    if once:
        lines += ["", f"Timed once, as its calls are long: {', '.join(once)}"]
    for name, why in cell.get("absent", {}).items():
        lines += ["", f"No row of {prose(name)}: {prose(why)}"]
    inside = "\n".join(f"    {line_}" for line_ in lines)
    return f'??? abstract "{cell["cell"]}"\n\n{inside}'


# --- the picture ------------------------------------------------------------------


def _ratios(cells: Sequence[Record]) -> str:
    """A dot for every goal: our time over the other's, 1 is level."""
    rows = [
        Ratio(
            f"{cell['cell']}, {_side(goal['ours'])}",
            goal["ratio"],
            f"{goal['ours']} ÷ {goal['against']}",
            goal["met"],
        )
        for cell, goal in _compared(cells)
    ]
    if not rows:
        return ""
    return ratio_picture(
        rows,
        (0.25, 0.5, 1.0, 2.0, 4.0),
        "Our time as a multiple of the best other code, one dot per comparison",
        "Our time over the time of the best other code on the same engine: left of 1 "
        "rlxweb is faster. A hollow dot misses its goal.",
    )


def _side(name: str) -> str:
    """The part of a row's name that tells it from our others: "CPU", "call" …"""
    return name.removeprefix("rlxweb").lstrip(", ")


SECTIONS: dict[str, Callable[[Record, str], str]] = {
    "rlxweb.bench": _ops,
    "rlxweb.bench.gpu": gpu_section.section,
    "rlxweb.bench.band": band_section.section,
    "rlxweb.bench.graphs": picker_section.section,
    "rlxweb.bench.picker": picker_section.section,
    "rlxweb.bench.scaling": scaling_section.section,
    "rlxweb.bench.tab": tab_section.section,
}
