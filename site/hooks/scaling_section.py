"""What many workers bring: measured at one and two, simulated beyond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from docstrings import prose
from drawing import Scale, against, curve, dot, figure, picture, plain, text

Record = Mapping[str, Any]

_WIDTH, _HEIGHT = 760, 470
_PLOT = (64, 560, 24, 422)  # left, right, top, bottom


def section(record: Record, name: str) -> str:
    """The picture, what was measured, where the limits are."""
    parts = [
        "## Recordings on many workers",
        _machine(record, name),
        scaling_picture(record),
        _measured(record),
        _costs(record),
        _limits(record),
    ]
    return "\n\n".join(parts)


def _machine(record: Record, name: str) -> str:
    machine, settings = record["machine"], record["settings"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if v)
    return prose(
        f"{machine['system']}, {machine['processor']}, {machine['cores']} cores; "
        f"Python {machine['python']}, {versions}. Device {settings['device']}, "
        f"{settings['rounds']} rounds in turns, medians; from `{name}`. One and two "
        "workers are processes on that machine, whose scheduler and client run beside "
        "them; more are simulated from what a task was measured to cost."
    )


def _measured(record: Record) -> str:
    lines = [
        "| | without a cluster, ms | one worker, ms | more "
        "| two workers, ms | two processes, no cluster | simulated: one | two |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cell in record["cells"]:
        simulated = cell["simulated_one_ms"], cell["simulated_two_ms"]
        lines.append(_row("a recording", cell, *map(plain, simulated)))
    lines.append(_row("a chunk of an array", record["array"], "–", "–"))
    table = "\n".join(lines)
    return f"Milliseconds for one, of a whole run over many:\n\n{table}"


def _row(name: str, cell: Record, *simulated: str) -> str:
    columns = (
        f"{name}, {_size(cell['nbytes'])}",
        plain(cell["here_ms"]),
        plain(cell["one_ms"]),
        f"{cell['one_more']:+.1%}",
        plain(cell["two_ms"]),
        plain(cell["pair_ms"]),
        *simulated,
    )
    return f"| {' | '.join(columns)} |"


def _costs(record: Record) -> str:
    costs = record["costs"]
    return prose(
        "Beside its work a task takes "
        f"{plain(1e3 * costs['client_s'])} ms of the client, "
        f"{plain(1e3 * costs['scheduler_s'])} ms of the scheduler and "
        f"{plain(1e3 * costs['worker_s'])} ms of its worker. Recordings share a task "
        f"up to {record['settings']['task_nbytes'] >> 20} MiB or "
        f"{record['settings']['most_together']} of them, which is what makes this "
        "little of their time; of each "
        f"{plain(record['cells'][0]['back_nbytes'] / 1e3)} kB come back."
    )


def _limits(record: Record) -> str:
    lines = [
        "| storage | a recording of | workers until it pays less than 80 % | then the "
        "limit is | at most, a second |",
        "|---|---|---:|---|---:|",
    ]
    for one in record["simulated"]:
        base = one["points"][0]
        short = [
            p
            for p in one["points"]
            if p["per_second"] < 0.8 * p["workers"] * base["per_second"]
        ]
        most = max(p["per_second"] for p in one["points"])
        last = one["points"][-1]
        columns = (
            prose(f"{one['storage']}: {one['says']}"),
            _size(one["nbytes"]),
            f"{short[0]['workers']:,}" if short else f"over {last['workers']:,}",
            short[0]["limit"] if short else "–",
            plain(most),
        )
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines)


def _size(nbytes: float) -> str:
    return f"{plain(nbytes / 1e6)} MB"


# --- the picture ------------------------------------------------------------------


def scaling_picture(record: Record) -> str:
    """Times as fast as one worker, against the workers; both logarithmic."""
    runs: Sequence[Record] = record["simulated"]
    most = max(p["workers"] for one in runs for p in one["points"])
    words = "workers", "times as fast as one"
    across, up, parts = against(1, most, _PLOT, words)
    ends = []
    for at, one in enumerate(runs):
        base = one["points"][0]["per_second"]
        points = [(p["workers"], p["per_second"] / base) for p in one["points"]]
        places = [(across(n), up(max(times, 1.0))) for n, times in points]
        parts.append(curve(places, f"rlx-line rlx-series-{at}"))
        for (x, y), p in zip(places, one["points"], strict=True):
            says = f"{p['workers']:,} workers: {plain(p['per_second'])} a second"
            parts.append(dot(x, y, 3, f"rlx-series-{at}", f"{says}; {p['limit']}"))
        ends.append((places[-1][1], at, one))
    parts += _labels(ends)
    parts += _dots(record, across, up)
    svg = picture(_WIDTH, _HEIGHT, "What many workers bring", parts)
    return figure(
        svg,
        "Every line is a size of recordings on a storage; on the diagonal twice the "
        "workers are twice as fast. Rings were measured on two cores, the rest is "
        "simulated.",
    )


def _labels(ends: list[tuple[float, int, Record]]) -> list[str]:
    """At the end of each line, none on another."""
    parts, last = [], -100.0
    for y, at, one in sorted(ends, key=lambda end: end[:2]):
        y = max(y, last + 34)
        last = y
        limit = one["points"][-1]["limit"]
        parts += [
            dot(_PLOT[1] + 14, y - 4, 5, f"rlx-series-{at}"),
            text(_PLOT[1] + 24, y, f"{_size(one['nbytes'])}, {one['storage']}"),
            text(_PLOT[1] + 24, y + 15, f"limit: {limit}", "rlx-quiet"),
        ]
    return parts


def _dots(record: Record, across: Scale, up: Scale) -> list[str]:
    parts = []
    for cell in record["cells"]:
        times = cell["one_ms"] / cell["two_ms"]
        says = f"measured, {_size(cell['nbytes'])}: {times:.2f} × with two workers"
        parts.append(dot(across(2), up(max(times, 1.0)), 5, "rlx-ring", says))
    return parts
