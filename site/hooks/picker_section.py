"""Sweeps of the picker and of graphs: predicted, measured, lost by picking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docstrings import prose
from drawing import against, dot, figure, picture, plain, text

Record = Mapping[str, Any]

_WIDTH, _HEIGHT = 720, 460
_PLOT = (64, 700, 24, 412)  # left, right, top, bottom


# What tells the jobs of a sweep from each other: columns and their alignment.
_SIZES = {"n_fft": "---:", "batch": "---:", "k": "---:", "segments": "---:"}
_GRAPHS = {"family": "---", "shape": "---"}


def section(record: Record, name: str) -> str:
    """Summary of the regret, the picture, the models' errors, then every cell."""
    of_graphs = "family" in record["cells"][0]
    parts = [
        f"## Picks{' for graphs' if of_graphs else ''}: predicted against measured",
        _machine(record, name),
        _summary(record),
        _picture(record["cells"]),
        "### How wrong the models are",
        _errors(record["summary"]["model_error"]),
        _losing(record["summary"]["losing"]),
        _cells(record["cells"], _GRAPHS if of_graphs else _SIZES),
    ]
    return "\n\n".join(part for part in parts if part)


def _machine(record: Record, name: str) -> str:
    engines = "; ".join(engine.strip() for engine in record["engines"])
    return prose(
        f"{record['machine']}. Engines: {engines}. {record['rounds']} rounds a way, "
        f"medians; from `{name}`."
    )


def _summary(record: Record) -> str:
    summary = record["summary"]
    lines = [
        "**Regret** is the time of the pick over that of the best way: 1 is perfect.",
        "",
        f"| over {summary['cells']} jobs | median | 90 % | worst |",
        "|---|---:|---:|---:|",
    ]
    for label, key in (
        ("among all engines", "regret"),
        ("among the devices alone, NumPy left out", "device_regret"),
    ):
        figures = (summary[key][q] for q in ("median", "p90", "worst"))
        shown = ("–" if q is None else f"{q:.3f}" for q in figures)
        lines.append(f"| {label} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _errors(errors: Mapping[str, float]) -> str:
    lines = ["| engine and way | typical miss |", "|---|---:|"]
    lines += [f"| {prose(name)} | {miss:.0%} |" for name, miss in errors.items()]
    return "\n".join(lines)


def _losing(losing: Sequence[Any]) -> str:
    if not losing:
        return "No pick of the sweep took more than 5 % longer than the best way."
    return "\n".join(
        [
            "Picks that took more than 5 % longer than the best way:",
            "",
            *(f"- {prose(str(x))}" for x in losing),
        ]
    )


def _cells(cells: Sequence[Record], columns: Mapping[str, str]) -> str:
    """Every job: the pick, what it was thought to take, what it took, the best."""
    heads = " | ".join(columns) + " | pick | predicted ms | ms | best ms | regret"
    rules = "|".join(columns.values())
    lines = [f"| {heads} |", f"|{rules}|---|---:|---:|---:|---:|"]
    for cell in cells:
        rows = [row for row in cell["rows"] if not row["error"]]
        pick = rows[0]  # they stand in the order of their predictions
        best = min(row["measured_ms"] for row in rows)
        sizes = (_size(cell[key]) for key in columns)
        times = (pick["predicted_ms"], pick["measured_ms"], best)
        lines.append(
            f"| {' | '.join(sizes)} | {prose(_way(pick))} "
            f"| {' | '.join(plain(ms) for ms in times)} | {cell['regret']:.3f} |"
        )
    inside = "\n".join(f"    {line_}" for line_ in lines)
    return f'??? abstract "All {len(cells)} jobs"\n\n{inside}'


def _size(value: Any) -> str:
    if isinstance(value, list):
        return " × ".join(f"{one:,}" for one in value)
    return value if isinstance(value, str) else f"{value:,}"


def _way(row: Record) -> str:
    how = row["how"]
    return row["engine"] if how == "host" else f"{row['engine']}, {how}"


# --- the picture ------------------------------------------------------------------


def _points(cells: Sequence[Record]) -> Iterator[tuple[float, float, str, str]]:
    for cell in cells:
        if "family" in cell:
            size = f"{cell['family']} {_size(cell['shape'])}"
        else:
            size = f"{cell['batch']:,} × {cell['n_fft']:,}, k {cell['k']}"
        for row in cell["rows"]:
            if not row["error"]:
                yield row["predicted_ms"], row["measured_ms"], row["device"], size


def _picture(cells: Sequence[Record]) -> str:
    points = list(_points(cells))
    low = min(min(p, m) for p, m, _, _ in points) / 1.3
    high = max(max(p, m) for p, m, _, _ in points) * 1.3
    across, up, parts = against(low, high, _PLOT, ("predicted, ms", "measured, ms"))
    left, _, top, _ = _PLOT
    names = list(dict.fromkeys(device for *_, device, _ in points))
    for predicted, measured, device, size in points:
        says = f"{device}, {size}: {plain(predicted)} predicted, {plain(measured)} ms"
        kind = f"rlx-point rlx-series-{names.index(device)}"
        parts.append(dot(across(predicted), up(measured), 3, kind, says))
    for at, name in enumerate(names):
        y = top + 20 + 22 * at
        parts.append(dot(left + 22, y, 5, f"rlx-series-{at}"))
        parts.append(text(left + 34, y + 5, name, "rlx-label"))
    svg = picture(_WIDTH, _HEIGHT, "Predicted against measured times", parts)
    return figure(
        svg,
        "Every way of every job of the sweep; on the line the prediction is exact. "
        "The sizes are not among those that were calibrated.",
    )
