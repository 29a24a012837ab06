"""The benchmark inside a browser tab: starts, and rlxweb beside NumPy and jax-js."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from docstrings import prose
from drawing import Scale, dot, figure, line, picture, plain, text

Record = Mapping[str, Any]

_MARKS = {
    "python": "Python up",
    "packages": "packages",
    "imported": "imported",
    "adapter": "adapter",
    "first": "first result",
}
_WIDTH, _LEFT, _ROW = 760, 330, 26


def section(record: Record, name: str) -> str:
    """Time to the first result, then the ratio of every peer to us."""
    parts = [
        "## In a browser tab",
        prose(
            f"{record['browser']} on {record['adapter']}, "
            f"{_machine(record['machine'])}; peers interleaved in one page, medians; "
            f"{record['peer']}; from `{name}`."
        ),
        _starts(record["starts"]),
        _ratios(record["cells"]),
        _rows(record["cells"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _machine(machine: Record) -> str:
    return f"{machine['system']}, {machine['processor']}, {machine['cores']} cores"


def _starts(starts: Sequence[Record]) -> str:
    """Milliseconds since navigation: cold, a browser new to the site, and warm."""
    if not starts:
        return ""
    heads = [*_MARKS.values(), "result after Python"]
    lines = [
        f"Milliseconds since navigation, medians of {len(starts)} starts:",
        "",
        f"| start | {' | '.join(heads)} |",
        "|---|" + "---:|" * len(heads),
    ]
    for kind in ("cold", "warm"):
        marks = [start[kind] for start in starts]
        times = [statistics.median(m[key] for m in marks) for key in _MARKS]
        times.append(statistics.median(m["first"] - m["python"] for m in marks))
        lines.append(f"| {kind} | {' | '.join(f'{ms:,.0f}' for ms in times)} |")
    return "\n".join(lines)


def _base(cell: Record, row: Record) -> float:
    """Our time for the same work: resident operands beside resident ones."""
    ours = {r["name"]: r["ms"] for r in cell["rows"] if "ms" in r}
    way = "resident" if "resident" in row["name"] else "in+out"
    return float(ours.get(f"rlxweb {way}", ours.get("rlxweb in+out", 0.0)))


def _is_ours(row: Record) -> bool:
    return str(row["name"]).startswith("rlxweb") and "NumPy" not in row["name"]


def _rows(cells: Sequence[Record]) -> str:
    lines = [
        "| work | peer | ms | spread | first ms | ÷ rlxweb |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for cell in cells:
        for row in cell["rows"]:
            label = f"**{row['name']}**" if _is_ours(row) else prose(row["name"])
            start = f"| {cell['kind']} {cell['n']:,} | {label} "
            if "error" in row:
                lines.append(f"{start}| failed: {prose(row['error'])} | | | |")
                continue
            base = _base(cell, row)
            ratio = f"{row['ms'] / base:.2f}" if base else "–"
            lines.append(
                f"{start}| {plain(row['ms'])} | {row['spread']:.0%} "
                f"| {plain(row['first_ms'])} | {ratio} |"
            )
    return "\n".join(lines)


def _ratios(cells: Sequence[Record]) -> str:
    """A dot per peer: its time over ours, right of 1 rlxweb is faster."""
    found = [
        (f"{cell['kind']} {cell['n']:,}, {row['name']}", row["ms"] / _base(cell, row))
        for cell in cells
        for row in cell["rows"]
        if "ms" in row and not _is_ours(row) and _base(cell, row)
    ]
    if not found:
        return ""
    height = 44 + _ROW * len(found)
    across = Scale(0.1, 100.0, _LEFT + 16, _WIDTH - 60, log=True)
    parts = [
        part
        for tick in (0.1, 1.0, 10.0, 100.0)
        for part in (
            line(across(tick), 26, across(tick), height - 8, _grid(tick)),
            text(across(tick), 16, f"{tick:g} ×", "rlx-quiet", "middle"),
        )
    ]
    for at, (label, ratio) in enumerate(found):
        y = 44 + _ROW * at
        x = across(min(max(ratio, 0.1), 100.0))
        kind = "rlx-good" if ratio >= 1 else "rlx-bad"
        parts += [
            text(_LEFT, y + 5, label, "rlx-label", "end"),
            line(across(1.0), y, x, y, f"rlx-stem {kind}"),
            dot(x, y, 5.5, kind, f"{label}: {ratio:.2f} × our time"),
            text(_WIDTH - 8, y + 5, f"{ratio:.2f}", "rlx-number", "end"),
        ]
    says = "Time of every peer as a multiple of ours, in the same page"
    caption = (
        "The peer's time over ours for the same work in the same page: right of 1 "
        "rlxweb is faster. Hollow dots are faster than rlxweb."
    )
    return figure(picture(_WIDTH, height, says, parts), caption)


def _grid(tick: float) -> str:
    return "rlx-axis" if tick == 1.0 else "rlx-grid"
