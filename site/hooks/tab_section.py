"""The benchmark inside a browser tab: starts, and rlxweb beside NumPy and jax-js."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from docstrings import prose
from drawing import plain
from ratio_picture import Ratio, ratio_picture

Record = Mapping[str, Any]

_DEMOS = {
    "live": "Live spectrum",
    "check": "Is this GPU right?",
    "playground": "Playground",
}
_MARKS = {
    "python": "Python up",
    "imported": "imported",
    "adapter": "adapter",
    "first": "first result",
}


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
    heads += [f"demo “{name}”" for name in _DEMOS.values()]
    heads.append("exported, without Python")
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
        for key in (*_DEMOS, "exported"):
            times.append(statistics.median(m[key] for m in marks))
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
    rows = []
    for cell in cells:
        for row in cell["rows"]:
            if "ms" in row and not _is_ours(row) and _base(cell, row):
                label = f"{cell['kind']} {cell['n']:,}, {row['name']}"
                ratio = row["ms"] / _base(cell, row)
                says = f"{label}: {ratio:.2f} × our time"
                rows.append(Ratio(label, ratio, says, ratio >= 1))
    if not rows:
        return ""
    return ratio_picture(
        rows,
        (0.1, 1.0, 10.0, 100.0),
        "Time of every peer as a multiple of ours, in the same page",
        "The peer's time over ours for the same work in the same page: right of 1 "
        "rlxweb is faster. Hollow dots are faster than rlxweb.",
    )
