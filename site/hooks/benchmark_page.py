"""Tables and charts of the measurements in tests/benchmarks/results/.

Losing rows come first, and every number stands under its adapter.
Nothing is measured here. A results file is shown by its schema; one whose schema nobody
knows stops the build, so that no result is silently left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import benchmark_band_section
import benchmark_browser_section
import benchmark_device_choice_section
import benchmark_kernel_section
import benchmark_scaling_section
from docstring_to_markdown import escape_markdown
from ratio_chart import RatioRow, ratio_chart
from svg_drawing import format_number

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "benchmarks" / "results"
Record = Mapping[str, Any]
_MAX_NAMED_PEERS = 2


def benchmarks() -> str:
    """Return the section of every results file, in the order of their names."""
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        family = str(record.get("schema", "")).rsplit("/", 1)[0]
        if family not in SECTIONS:
            raise ValueError(
                f"{path.name} has the unknown schema {record.get('schema')!r}; known "
                f"are {', '.join(SECTIONS)}: add it to site/hooks/benchmark_page.py"
            )
        parts.append(SECTIONS[family](record, path.name))
    return "\n\n".join(parts)


def _ops_section(record: Record, name: str) -> str:
    """Section on peers timed in turn in one process: a chart of the ratios, then all
    rows.
    """
    cells = [cell for cell in record["cells"] if cell["rows"]]
    parts = [
        f"## {_section_title(cells)}",
        _machine_text(record, name),
        _ratios_chart(cells),
        _goals_table(cells),
        "Every row of every job:",
        *(_job_table(cell) for cell in cells),
    ]
    parts += [
        f"Not timed, because the result is wrong: {escape_markdown(reason)}"
        for reason in record["wrong"]
    ]
    return "\n\n".join(parts)


def _section_title(cells: Sequence[Record]) -> str:
    """Title from the engines of our own rows, without versions, and those of the peers
    if they are few.
    """

    def engine_names(ours: bool) -> list[str]:
        rows = [row for cell in cells for row in cell["rows"] if row["ours"] is ours]
        return list(dict.fromkeys(row["engine"].split(" (")[0] for row in rows))

    ours = dict.fromkeys(name.split(" ")[0] for name in engine_names(True))
    others = engine_names(False)
    peers = " and ".join(others) if len(others) <= _MAX_NAMED_PEERS else "other code"
    return f"{' and '.join(ours)} compared with {peers}"


def _machine_text(record: Record, name: str) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if v)
    adapters = "; ".join(
        f"{adapter['name']}, {adapter['backend']}, {adapter['driver']}"
        for adapter in machine["adapters"]
    )
    return escape_markdown(
        f"{machine['system']}, {machine['processor']}, {machine['cores']} cores; "
        f"Python {machine['python']}, {versions}. Adapters: {adapters}. "
        f"{record['settings']['rounds']} rounds, medians; from `{name}`."
    )


def _goals_by_miss(cells: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Pairs of a cell and one of its goals, those missed by most first."""
    pairs = [(cell, goal) for cell in cells for goal in cell["goals"]]
    return sorted(pairs, key=lambda pair: -pair[1]["ratio"] / pair[1]["limit"])


def _goals_table(cells: Sequence[Record]) -> str:
    """Table with a row per comparison: our best against the best other code."""
    lines = [
        "| job | rlxweb | ms | other code | ms | ratio | goal |",
        "|---|---|---:|---|---:|---:|---|",
    ]
    for cell, goal in _goals_by_miss(cells):
        times = {row["name"]: row["ms"] for row in cell["rows"]}
        met = "met" if goal["met"] else "**missed**"
        columns = (
            escape_markdown(cell["cell"]),
            _own_row_label(goal["ours"]),
            format_number(times[goal["ours"]]),
            escape_markdown(goal["against"]),
            format_number(times[goal["against"]]),
            f"{goal['ratio']:.2f}",
            f"≤ {goal['limit']:g}, {met}",
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def _job_table(cell: Record) -> str:
    """Table of all rows of one job, fastest first, with our time as a multiple of
    each.
    """
    rows = sorted(cell["rows"], key=lambda row: row["ms"])
    # Those that a goal is set for.
    ours = [row["name"] for row in rows if row["name"] in rows[0]["ratio"]]
    headers = [
        "",
        "on",
        "ms",
        "spread",
        "first ms",
        *(f"{_own_row_label(n)} ÷ this" for n in ours),
    ]
    lines = [f"| {' | '.join(headers)} |", "|---|---|" + "---:|" * (3 + len(ours))]
    for row in rows:
        label = f"**{row['name']}**" if row["ours"] else escape_markdown(row["name"])
        numbers = [
            format_number(row["ms"]),
            f"{row['spread']:.0%}",
            format_number(row["first_ms"]),
        ]
        ratios = [format_number(row["ratio"][name]) for name in ours]
        engine = escape_markdown(row["engine"].split(" (")[0])
        lines.append(f"| {' | '.join([label, engine, *numbers, *ratios])} |")
    timed_once = [escape_markdown(row["name"]) for row in rows if row["samples"] == 1]
    if timed_once:
        lines += [
            "",
            f"Timed only once, because a call is long: {', '.join(timed_once)}",
        ]
    for name, reason in cell.get("absent", {}).items():
        lines += [
            "",
            f"No result of {escape_markdown(name)}: {escape_markdown(reason)}",
        ]
    indented = "\n".join(f"    {line_}" for line_ in lines)
    return f'??? abstract "{cell["cell"]}"\n\n{indented}'


# --- the picture ------------------------------------------------------------------


def _ratios_chart(cells: Sequence[Record]) -> str:
    """Chart with a dot for every goal: our time over the other's; 1 is equal."""
    rows = [
        RatioRow(
            f"{cell['cell']}, {_own_row_label(goal['ours'])}",
            goal["ratio"],
            f"{goal['ours']} ÷ {goal['against']}",
            goal["met"],
        )
        for cell, goal in _goals_by_miss(cells)
    ]
    if not rows:
        return ""
    return ratio_chart(
        rows,
        (0.25, 0.5, 1.0, 2.0, 4.0),
        "Time of rlxweb divided by the best other code, one dot per comparison",
        "Time of rlxweb divided by that of the best other code on the same engine: "
        "left of 1, rlxweb is faster. A hollow dot misses its goal.",
    )


def _own_row_label(name: str) -> str:
    """Part of a row's name that tells our rows from each other: "CPU", "call" …"""
    return name.removeprefix("rlxweb").lstrip(", ")


SECTIONS: dict[str, Callable[[Record, str], str]] = {
    "rlxweb.bench": _ops_section,
    "rlxweb.bench.gpu": benchmark_kernel_section.section,
    "rlxweb.bench.band": benchmark_band_section.section,
    "rlxweb.bench.graphs": benchmark_device_choice_section.section,
    "rlxweb.bench.picker": benchmark_device_choice_section.section,
    "rlxweb.bench.scaling": benchmark_scaling_section.section,
    "rlxweb.bench.tab": benchmark_browser_section.section,
}
