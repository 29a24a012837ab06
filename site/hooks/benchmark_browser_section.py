"""Benchmark section on a browser tab: start times, and rlxweb beside NumPy and
jax-js.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from docstring_to_markdown import escape_markdown
from ratio_chart import RatioRow, ratio_chart
from svg_drawing import format_number

Record = Mapping[str, Any]

_DEMOS = {
    "live": "Live spectrum",
    "check": "Check this GPU",
    "playground": "Playground",
}
_MARKS = {
    "python": "Python started",
    "imported": "imported",
    "adapter": "adapter",
    "first": "first result",
}


def section(record: Record, name: str) -> str:
    """Return the section: time to the first result, then the ratio of every peer to
    us.
    """
    parts = [
        "## In a browser tab",
        escape_markdown(
            f"{record['browser']} on {record['adapter']}, "
            f"{_machine_text(record['machine'])}; peers interleaved in one page, "
            f"medians; "
            f"{record['peer']}; from `{name}`."
        ),
        _start_table(record["starts"]),
        _ratio_chart(record["cells"]),
        _peers_table(record["cells"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _machine_text(machine: Record) -> str:
    return f"{machine['system']}, {machine['processor']}, {machine['cores']} cores"


def _start_table(starts: Sequence[Record]) -> str:
    """Table of milliseconds since navigation: cold, in a browser new to the site, and
    warm.
    """
    if not starts:
        return ""
    headers = [*_MARKS.values(), "result after Python"]
    headers += [f"demo “{name}”" for name in _DEMOS.values()]
    headers.append("exported, without Python")
    lines = [
        f"Milliseconds since navigation, medians of {len(starts)} starts:",
        "",
        f"| start | {' | '.join(headers)} |",
        "|---|" + "---:|" * len(headers),
    ]
    for kind in ("cold", "warm"):
        marks = [start[kind] for start in starts]
        times = [statistics.median(m[key] for m in marks) for key in _MARKS]
        times.append(statistics.median(m["first"] - m["python"] for m in marks))
        for key in (*_DEMOS, "exported"):
            times.append(statistics.median(m[key] for m in marks))
        lines.append(f"| {kind} | {' | '.join(f'{ms:,.0f}' for ms in times)} |")
    return "\n".join(lines)


def _our_time(cell: Record, row: Record) -> float:
    """Our time for the same work, resident operands compared with resident ones."""
    ours = {r["name"]: r["ms"] for r in cell["rows"] if "ms" in r}
    placement = "resident" if "resident" in row["name"] else "in+out"
    return float(ours.get(f"rlxweb {placement}", ours.get("rlxweb in+out", 0.0)))


def _is_ours(row: Record) -> bool:
    return str(row["name"]).startswith("rlxweb") and "NumPy" not in row["name"]


def _peers_table(cells: Sequence[Record]) -> str:
    lines = [
        "| work | peer | ms | spread | first ms | ÷ rlxweb |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for cell in cells:
        for row in cell["rows"]:
            label = (
                f"**{row['name']}**" if _is_ours(row) else escape_markdown(row["name"])
            )
            start = f"| {cell['kind']} {cell['n']:,} | {label} "
            if "error" in row:
                lines.append(
                    f"{start}| failed: {escape_markdown(row['error'])} | | | |"
                )
                continue
            our_time = _our_time(cell, row)
            ratio = f"{row['ms'] / our_time:.2f}" if our_time else "–"
            lines.append(
                f"{start}| {format_number(row['ms'])} | {row['spread']:.0%} "
                f"| {format_number(row['first_ms'])} | {ratio} |"
            )
    return "\n".join(lines)


def _ratio_chart(cells: Sequence[Record]) -> str:
    """Chart with a dot per peer: its time over ours; right of 1 rlxweb is faster."""
    rows = []
    for cell in cells:
        for row in cell["rows"]:
            if "ms" in row and not _is_ours(row) and _our_time(cell, row):
                label = f"{cell['kind']} {cell['n']:,}, {row['name']}"
                ratio = row["ms"] / _our_time(cell, row)
                tooltip = f"{label}: {ratio:.2f} × the time of rlxweb"
                rows.append(RatioRow(label, ratio, tooltip, ratio >= 1))
    if not rows:
        return ""
    return ratio_chart(
        rows,
        (0.1, 1.0, 10.0, 100.0),
        "Time of every peer divided by that of rlxweb, in the same page",
        "Time of the peer divided by that of rlxweb, for the same work in the same "
        "page: right of 1, rlxweb is faster. Hollow dots are faster than rlxweb.",
    )
