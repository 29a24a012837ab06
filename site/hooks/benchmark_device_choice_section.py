"""Benchmark section on device choice for jobs and graphs: predictions, measurements,
regret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docstring_to_markdown import escape_markdown
from svg_drawing import dot, figure, format_number, log_log_axes, svg_image, text

Record = Mapping[str, Any]

_WIDTH, _HEIGHT = 720, 460
_PLOT = (64, 700, 24, 412)  # left, right, top, bottom


# What tells the jobs of a sweep from each other: columns and their alignment.
_SIZE_COLUMNS = {"n_fft": "---:", "batch": "---:", "k": "---:", "segments": "---:"}
_GRAPH_COLUMNS = {"family": "---", "shape": "---"}


def section(record: Record, name: str) -> str:
    """Return the section: the regret, a chart, the models' errors, then every cell."""
    is_graphs = "family" in record["cells"][0]
    parts = [
        f"## Picks{' for graphs' if is_graphs else ''}: predicted and measured times",
        _machine_text(record, name),
        _regret_table(record),
        _scatter_chart(record["cells"]),
        "### Errors of the cost models",
        _model_error_table(record["summary"]["model_error"]),
        _losing_picks(record["summary"]["losing"]),
        _jobs_table(record["cells"], _GRAPH_COLUMNS if is_graphs else _SIZE_COLUMNS),
    ]
    return "\n\n".join(part for part in parts if part)


def _machine_text(record: Record, name: str) -> str:
    engines = "; ".join(engine.strip() for engine in record["engines"])
    return escape_markdown(
        f"{record['machine']}. Engines: {engines}. {record['rounds']} rounds per "
        f"candidate, medians; from `{name}`."
    )


def _regret_table(record: Record) -> str:
    summary = record["summary"]
    lines = [
        "**Regret** is the time of the pick divided by the best time: 1 is perfect.",
        "",
        f"| over {summary['cells']} jobs | median | 90 % | worst |",
        "|---|---:|---:|---:|",
    ]
    for label, key in (
        ("among all engines", "regret"),
        ("among the devices only, without NumPy", "device_regret"),
    ):
        figures = (summary[key][q] for q in ("median", "p90", "worst"))
        cells = ("–" if q is None else f"{q:.3f}" for q in figures)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _model_error_table(errors: Mapping[str, float]) -> str:
    lines = ["| engine and variant | typical error |", "|---|---:|"]
    lines += [
        f"| {escape_markdown(name)} | {miss:.0%} |" for name, miss in errors.items()
    ]
    return "\n".join(lines)


def _losing_picks(losing: Sequence[Any]) -> str:
    if not losing:
        return "No pick took more than 5 % longer than the best candidate."
    return "\n".join(
        [
            "Picks that took more than 5 % longer than the best candidate:",
            "",
            *(f"- {escape_markdown(str(x))}" for x in losing),
        ]
    )


def _jobs_table(cells: Sequence[Record], columns: Mapping[str, str]) -> str:
    """Table of every job: the pick, its predicted and measured time, the best time."""
    headers = " | ".join(columns) + " | pick | predicted ms | ms | best ms | regret"
    alignments = "|".join(columns.values())
    lines = [f"| {headers} |", f"|{alignments}|---|---:|---:|---:|---:|"]
    for cell in cells:
        rows = [row for row in cell["rows"] if not row["error"]]
        pick = rows[0]  # they stand in the order of their predictions
        best = min(row["measured_ms"] for row in rows)
        sizes = (_size_text(cell[key]) for key in columns)
        times = (pick["predicted_ms"], pick["measured_ms"], best)
        lines.append(
            f"| {' | '.join(sizes)} | {escape_markdown(_candidate_label(pick))} "
            f"| {' | '.join(format_number(ms) for ms in times)} | "
            f"{cell['regret']:.3f} |"
        )
    indented = "\n".join(f"    {line_}" for line_ in lines)
    return f'??? abstract "All {len(cells)} jobs"\n\n{indented}'


def _size_text(value: Any) -> str:
    if isinstance(value, list):
        return " × ".join(f"{extent:,}" for extent in value)
    return value if isinstance(value, str) else f"{value:,}"


def _candidate_label(row: Record) -> str:
    variant = row["how"]
    return row["engine"] if variant == "host" else f"{row['engine']}, {variant}"


# --- the picture ------------------------------------------------------------------


def _points(cells: Sequence[Record]) -> Iterator[tuple[float, float, str, str]]:
    for cell in cells:
        if "family" in cell:
            size = f"{cell['family']} {_size_text(cell['shape'])}"
        else:
            size = f"{cell['batch']:,} × {cell['n_fft']:,}, k {cell['k']}"
        for row in cell["rows"]:
            if not row["error"]:
                yield row["predicted_ms"], row["measured_ms"], row["device"], size


def _scatter_chart(cells: Sequence[Record]) -> str:
    points = list(_points(cells))
    low = min(min(p, m) for p, m, _, _ in points) / 1.3
    high = max(max(p, m) for p, m, _, _ in points) * 1.3
    x_scale, y_scale, parts = log_log_axes(
        low, high, _PLOT, ("predicted, ms", "measured, ms")
    )
    left, _, top, _ = _PLOT
    names = list(dict.fromkeys(device for *_, device, _ in points))
    for predicted, measured, device, size in points:
        tooltip = (
            f"{device}, {size}: {format_number(predicted)} predicted, "
            f"{format_number(measured)} ms"
        )
        css_class = f"rlx-point rlx-series-{names.index(device)}"
        parts.append(dot(x_scale(predicted), y_scale(measured), 3, css_class, tooltip))
    for index, name in enumerate(names):
        y = top + 20 + 22 * index
        parts.append(dot(left + 22, y, 5, f"rlx-series-{index}"))
        parts.append(text(left + 34, y + 5, name, "rlx-label"))
    svg = svg_image(_WIDTH, _HEIGHT, "Predicted and measured times", parts)
    return figure(
        svg,
        "Every candidate of every job; on the line, the prediction is exact. The "
        "calibration used other sizes.",
    )
