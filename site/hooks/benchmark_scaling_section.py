"""Benchmark section on many workers: measured at one and two, simulated beyond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docstring_to_markdown import escape_markdown
from svg_drawing import (
    Scale,
    curve,
    dot,
    figure,
    format_number,
    log_log_axes,
    svg_image,
    text,
)

Record = Mapping[str, Any]

_WIDTH, _HEIGHT = 760, 470
_PLOT = (64, 560, 24, 422)  # left, right, top, bottom


def section(record: Record, name: str) -> str:
    """Return the section: the chart, the measurements, the limits."""
    parts = [
        "## Recordings on many workers",
        _machine_text(record, name),
        scaling_chart(record),
        _measured_table(record),
        _cost_text(record),
        _limits_table(record),
    ]
    return "\n\n".join(parts)


def _machine_text(record: Record, name: str) -> str:
    machine, settings = record["machine"], record["settings"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if v)
    return escape_markdown(
        f"{machine['system']}, {machine['processor']}, {machine['cores']} cores; "
        f"Python {machine['python']}, {versions}. Device {settings['device']}, "
        f"{settings['rounds']} interleaved rounds, medians; from `{name}`. One and two "
        "workers are processes on this machine, which also runs the scheduler and the "
        "client; more workers are simulated from the measured cost of a task."
    )


def _measured_table(record: Record) -> str:
    lines = [
        "| | no cluster, ms | one worker, ms | overhead | two workers, ms "
        "| two processes, no cluster, ms | one, simulated | two, simulated |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cell in record["cells"]:
        simulated = cell["simulated_one_ms"], cell["simulated_two_ms"]
        lines.append(_measured_row("a recording", cell, *map(format_number, simulated)))
    lines.append(_measured_row("a chunk of an array", record["array"], "–", "–"))
    table = "\n".join(lines)
    return f"Milliseconds per item, from a run over many items:\n\n{table}"


def _measured_row(name: str, cell: Record, *simulated: str) -> str:
    columns = (
        f"{name}, {_size_text(cell['nbytes'])}",
        format_number(cell["here_ms"]),
        format_number(cell["one_ms"]),
        f"{cell['one_more']:+.1%}",
        format_number(cell["two_ms"]),
        format_number(cell["pair_ms"]),
        *simulated,
    )
    return f"| {' | '.join(columns)} |"


def _cost_text(record: Record) -> str:
    costs = record["costs"]
    return escape_markdown(
        "In addition to its work, a task takes "
        f"{format_number(1e3 * costs['client_s'])} ms of the client, "
        f"{format_number(1e3 * costs['scheduler_s'])} ms of the scheduler and "
        f"{format_number(1e3 * costs['worker_s'])} ms of its worker. To reduce this, a "
        f"task contains several recordings: at most "
        f"{record['settings']['most_together']}, and at most "
        f"{record['settings']['task_nbytes'] >> 20} MiB. Each recording returns "
        f"{format_number(record['cells'][0]['back_nbytes'] / 1e3)} kB."
    )


def _limits_table(record: Record) -> str:
    lines = [
        "| storage | size of a recording | workers at less than 80 % efficiency "
        "| limited by | maximum per second |",
        "|---|---|---:|---|---:|",
    ]
    for run in record["simulated"]:
        base = run["points"][0]
        inefficient = [
            p
            for p in run["points"]
            if p["per_second"] < 0.8 * p["workers"] * base["per_second"]
        ]
        max_rate = max(p["per_second"] for p in run["points"])
        last = run["points"][-1]
        columns = (
            escape_markdown(f"{run['storage']}: {run['says']}"),
            _size_text(run["nbytes"]),
            f"{inefficient[0]['workers']:,}"
            if inefficient
            else f"over {last['workers']:,}",
            inefficient[0]["limit"] if inefficient else "–",
            format_number(max_rate),
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def _size_text(nbytes: float) -> str:
    return f"{format_number(nbytes / 1e6)} MB"


# --- the picture ------------------------------------------------------------------


def scaling_chart(record: Record) -> str:
    """Chart of the speed relative to one worker against the workers; both axes
    logarithmic.
    """
    runs: Sequence[Record] = record["simulated"]
    max_workers = max(p["workers"] for run in runs for p in run["points"])
    axis_labels = "workers", "speedup over one worker"
    x_scale, y_scale, parts = log_log_axes(1, max_workers, _PLOT, axis_labels)
    ends = []
    for index, run in enumerate(runs):
        base = run["points"][0]["per_second"]
        points = [(p["workers"], p["per_second"] / base) for p in run["points"]]
        pixels = [(x_scale(n), y_scale(max(speedup, 1.0))) for n, speedup in points]
        parts.append(curve(pixels, f"rlx-line rlx-series-{index}"))
        for (x, y), p in zip(pixels, run["points"], strict=True):
            tooltip = (
                f"{p['workers']:,} workers: {format_number(p['per_second'])} per second"
            )
            parts.append(
                dot(x, y, 3, f"rlx-series-{index}", f"{tooltip}; {p['limit']}")
            )
        ends.append((pixels[-1][1], index, run))
    parts += _line_labels(ends)
    parts += _measured_dots(record, x_scale, y_scale)
    svg = svg_image(_WIDTH, _HEIGHT, "Speedup with many workers", parts)
    return figure(
        svg,
        "Each line is for one size of recordings and one storage; on the diagonal, "
        "twice the workers are twice as fast. Rings were measured on two cores, the "
        "lines are simulated.",
    )


def _line_labels(ends: list[tuple[float, int, Record]]) -> list[str]:
    """Labels at the end of each line, moved apart so that none overlap."""
    parts, last = [], -100.0
    for y, index, run in sorted(ends, key=lambda end: end[:2]):
        y = max(y, last + 34)
        last = y
        limit = run["points"][-1]["limit"]
        parts += [
            dot(_PLOT[1] + 14, y - 4, 5, f"rlx-series-{index}"),
            text(_PLOT[1] + 24, y, f"{_size_text(run['nbytes'])}, {run['storage']}"),
            text(_PLOT[1] + 24, y + 15, f"limit: {limit}", "rlx-quiet"),
        ]
    return parts


def _measured_dots(record: Record, x_scale: Scale, y_scale: Scale) -> list[str]:
    parts = []
    for cell in record["cells"]:
        speedup = cell["one_ms"] / cell["two_ms"]
        tooltip = (
            f"measured, {_size_text(cell['nbytes'])}: {speedup:.2f} × with two workers"
        )
        parts.append(
            dot(x_scale(2), y_scale(max(speedup, 1.0)), 5, "rlx-ring", tooltip)
        )
    return parts
