"""Benchmark section on single kernels (`./dev bench kernels`): the share of the GPU
they reach, peers written by hand, their own variants, and failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from docstring_to_markdown import escape_markdown
from ratio_chart import RatioRow, ratio_chart
from svg_drawing import format_number

Record = Mapping[str, Any]
Rows = Sequence[Record]
LARGE_CASE_SHARE = 0.25
"""Share of the bytes of a kernel's largest case; the goals hold for cases above it."""
LOSING_SHARE = 0.95
"""A choice is listed as losing if the best time is below this share of its time."""


class KernelGoal(NamedTuple):
    """Share that one of our kernels is to reach on a GPU."""

    case: str
    what: str
    share: str
    minimum: float


GOALS = (
    KernelGoal("Welch peaks", "of memory bandwidth", "of_memory", 0.40),
    KernelGoal("softmax", "of memory bandwidth", "of_memory", 0.60),
    KernelGoal("layer norm", "of memory bandwidth", "of_memory", 0.60),
    KernelGoal("matmul f32", "of the float32 peak", "of_peak", 0.50),
    KernelGoal("fft", "of the best hand-written code", "of_peers", 0.80),
)


def section(record: Record, name: str) -> str:
    """Return the section: the machine, two charts, the goals, losing choices, and every
    row.
    """
    rows = record["rows"]
    own_rows = [row for row in rows if row["ns"] and not row["by_hand"]]
    choices = [row for row in own_rows if not row["variant"]]
    on_gpu = any(not engine["software"] for engine in record.get("engines", ()))
    parts = [
        f"## Single kernels: {escape_markdown(_adapter_names(record))}",
        _machine_text(record, name),
        _share_chart(choices),
        _peer_chart(choices),
        _goals_table(choices) if on_gpu else "",
        _losing_choices(choices, own_rows),
        _fault_list(record),
        _latency_table(record["trips"], record["from_host"]),
        *_case_tables(rows),
    ]
    return "\n\n".join(part for part in parts if part)


def _adapter_names(record: Record) -> str:
    adapters = (engine["adapter"] for engine in record.get("engines", ()))
    return ", ".join(dict.fromkeys(adapters)) or "no engine could be opened"


def _machine_text(record: Record, name: str) -> str:
    engines = "; ".join(
        f"{engine['place']}: {engine['adapter']}, driver "
        f"{engine['driver'] or 'unnamed'}"
        for engine in record.get("engines", ())
    )
    versions = ", ".join(f"{k} {v}" for k, v in record["versions"].items() if v)
    peers = ", ".join(f"{k} {v}" for k, v in record.get("peers", {}).items())
    gpus = " ".join(f"GPU: {line}." for line in record.get("nvidia", ()))
    partial_note = " The run was stopped early." if record["partial"] else ""
    return escape_markdown(
        f"{engines}. {record['machine']}; {versions}. {gpus} Compared with {peers}. "
        f"Arrays are on the device; medians of interleaved samples; from "
        f"`{name}`.{partial_note}"
    )


# --- pictures -------------------------------------------------------------------------


def _row_label(row: Record) -> str:
    return f"{row['case']} {row['shape']}, {row['engine']}"


def _short_label(row: Record) -> str:
    """Label of a row, short enough for a chart."""
    shape = row["shape"].replace(" segments", " seg.")
    return f"{row['case']} {shape}, {row['engine'].partition(':')[0]}"


def _share_reached(row: Record) -> float | None:
    shares = [row[key] for key in ("of_memory", "of_peak") if row[key] is not None]
    return max(shares, default=None)


def _share_chart(choices: Rows) -> str:
    """Chart with a dot for each choice: the share of the GPU that it reaches."""
    ratios = [
        RatioRow(
            _short_label(row),
            share,
            f"{format_number(row['ns'] / 1e3)} µs",
            share >= 0.4,
        )
        for row in choices
        if (share := _share_reached(row)) is not None
    ]
    if not ratios:
        return ""
    return ratio_chart(
        ratios,
        (0.01, 0.03, 0.1, 0.3, 1.0),
        "The share of memory bandwidth or arithmetic that each kernel reaches",
        "The share of the memory bandwidth that each kernel reaches, or of the float32 "
        "peak where that share is larger; 1 is the maximum. Where the bandwidth is not "
        "known, that of a copy counts as 1. A hollow dot is below 0.4.",
    )


def _best_peer_ratio(row: Record) -> float | None:
    """Best peer's time over ours, or None without a peer; above 1 we are faster."""
    shares = [share for share in row["of_peers"].values() if share is not None]
    return min(shares, default=None)


def _peer_chart(choices: Rows) -> str:
    ratios = [
        RatioRow(
            _short_label(row),
            1 / share,
            f"{format_number(row['ns'] / 1e3)} µs",
            share >= 0.8,
        )
        for row in choices
        if (share := _best_peer_ratio(row)) is not None
    ]
    if not ratios:
        return ""
    return ratio_chart(
        ratios,
        (0.25, 0.5, 1.0, 2.0, 4.0, 16.0),
        "Time of rlxweb divided by the best of PyTorch and CuPy, one dot per kernel",
        "Time of rlxweb divided by that of the best hand-written code in PyTorch or "
        "CuPy, in the same process: left of 1, rlxweb is faster. A hollow dot is above "
        "1.25.",
    )


# --- tables ---------------------------------------------------------------------------


def _goals_table(choices: Rows) -> str:
    """Table with a row per goal and engine: the best and the worst of its cases, and
    the worst of the large ones, which is what counts.
    """
    lines = [
        "| kernel | engine | best | worst | worst of the large cases | goal |",
        "|---|---|---:|---:|---:|---|",
    ]
    for goal in GOALS:
        goal_rows = [row for row in choices if row["case"] == goal.case]
        for engine in dict.fromkeys(row["engine"] for row in goal_rows):
            shares = {
                row["shape"]: (row["bytes"], share)
                for row in goal_rows
                if row["engine"] == engine
                and (share := _goal_share(row, goal)) is not None
            }
            if shares:
                lines.append(_goal_row(goal, engine, list(shares.values())))
    return "\n".join(lines) if len(lines) > 2 else ""


def _goal_row(
    goal: KernelGoal, engine: str, shares: Sequence[tuple[float, float]]
) -> str:
    """Table row of a goal; `shares` are the bytes of each case and the share that it
    reached.
    """
    all_shares = [share for _, share in shares]
    max_nbytes = max(nbytes for nbytes, _ in shares)
    worst = min(
        share for nbytes, share in shares if nbytes >= LARGE_CASE_SHARE * max_nbytes
    )
    met = "met" if worst >= goal.minimum else "**missed**"
    share_cells = " | ".join(
        f"{share:.0%}" for share in (max(all_shares), min(all_shares), worst)
    )
    goal_text = f"≥ {goal.minimum:.0%} {goal.what}, {met}"
    return (
        f"| {escape_markdown(goal.case)} | {escape_markdown(engine)} | "
        f"{share_cells} | {goal_text} |"
    )


def _goal_share(row: Record, goal: KernelGoal) -> float | None:
    if goal.share == "of_peers":
        return _best_peer_ratio(row)
    share: float | None = row[goal.share]
    return share


def _losing_choices(choices: Rows, own_rows: Rows) -> str:
    """List of choices that one of their own variants beats."""
    lines = []
    for row in choices:
        same_job = [
            r
            for r in own_rows
            if _job_key(r) == _job_key(row) and r["engine"] == row["engine"]
        ]
        best = min(same_job, key=lambda r: r["ns"])
        if best["ns"] < LOSING_SHARE * row["ns"]:
            chosen = row["chosen"] or "the chosen variant"
            own_time = f"{format_number(row['ns'] / 1e3)} µs"
            best_time = f"{format_number(best['ns'] / 1e3)} µs"
            line = (
                f"{_row_label(row)}: {chosen} takes {own_time}, "
                f"{best['variant']} takes {best_time}"
            )
            lines.append(f"- {escape_markdown(line)}")
    if not lines:
        return "No variant is more than 5 % faster than the chosen one."
    return "\n".join(
        ["Cases where a variant that was not chosen is faster:", "", *lines]
    )


def _job_key(row: Record) -> tuple[str, str]:
    return row["case"], row["shape"]


def _fault_list(record: Record) -> str:
    """List of rows that were wrong, crashed, hung or have no time, with the results of
    the smoke test.
    """
    rows = [row for row in record["rows"] if row["why"]]
    lines = [
        f"- {escape_markdown(_variant_label(row))}: {escape_markdown(row['why'])}"
        for row in rows
    ]
    lines += [f"- skipped: {escape_markdown(reason)}" for reason in record["left_out"]]
    for label, reason in record.get("missing", {}).items():
        lines.append(f"- {label} not measured: {escape_markdown(reason)}")
    smoke = record["smoke"]
    if smoke is not None:
        words = [f"{engine['key']} {engine['word']}" for engine in smoke["engines"]]
        lines.insert(
            0, f"- smoke --quick: {escape_markdown('; '.join(words) or 'not run')}"
        )
    if not lines:
        return ""
    return "\n".join(["Not timed, because wrong, missing or skipped:", "", *lines])


def _variant_label(row: Record) -> str:
    return f"{_row_label(row)} {row['variant']}".rstrip()


def _latency_table(trips: Record, from_host: Record) -> str:
    """Table of latencies, transfers, and a Welch estimate from host data in parts."""
    lines = ["| transfer | engine | |", "|---|---|---:|"]
    for engine, probes in trips.items():
        for key, value in probes.items():
            if key.endswith("_ns"):
                label = key.removesuffix("_ns").replace("_", " ")
                lines.append(
                    f"| {label} | {escape_markdown(engine)} | "
                    f"{format_number(value / 1e3)} µs |"
                )
        for entry in probes.get("transfers", ()):
            if entry["gb_s"] is not None:
                label = f"{entry['way']} {entry['mib']} MiB {entry['path']}".rstrip()
                speed = f"{format_number(entry['gb_s'])} GB/s"
                lines.append(
                    f"| {escape_markdown(label)} | {escape_markdown(engine)} | "
                    f"{speed} |"
                )
    for engine, probes in from_host.items():
        for key in ("whole", "put", "there", "rest"):
            if key in probes:
                label = f"Welch from the host, {probes['bytes'] / 1e6:,.0f} MB, {key}"
                ms = (
                    f"{format_number(probes[key] / 1e6)} ms"
                    if probes[key] > 0
                    else "0 ms"
                )
                lines.append(f"| {label} | {escape_markdown(engine)} | {ms} |")
        for entry in probes.get("paths", ()):
            order = "overlapping" if entry["overlaps"] else "one after another"
            label = f"Welch from the host, {entry['path']}, batches {order}"
            ms = format_number(entry["ns"] / 1e6)
            lines.append(
                f"| {escape_markdown(label)} | {escape_markdown(engine)} | {ms} ms |"
            )
    return (
        _collapsible("Transfers to the device and back", lines)
        if len(lines) > 2
        else ""
    )


def _case_tables(rows: Rows) -> Iterator[str]:
    """Table of every row of each case, fastest first."""
    for job in dict.fromkeys(map(_job_key, rows)):
        job_rows = [row for row in rows if _job_key(row) == job and row["ns"]]
        if not job_rows:
            continue
        peers = list(dict.fromkeys(p for row in job_rows for p in row["of_peers"]))
        headers = [
            "",
            "on",
            "µs",
            "spread",
            "GB/s",
            "memory",
            "TFLOP/s",
            "peak",
            *peers,
        ]
        lines = [
            f"| {' | '.join(headers)} |",
            "|---|---|" + "---:|" * (len(headers) - 2),
        ]
        lines += [
            _case_row(row, peers) for row in sorted(job_rows, key=lambda r: r["ns"])
        ]
        yield _collapsible(" ".join(job), lines)


def _case_row(row: Record, peers: Iterable[str]) -> str:
    variant = row["variant"] or row["chosen"] or "the chosen variant"
    is_choice = not row["variant"] and not row["by_hand"]
    cells = [
        f"**{escape_markdown(variant)}**"
        if is_choice
        else escape_markdown("" if row["by_hand"] else variant),
        escape_markdown(row["engine"]),
        format_number(row["ns"] / 1e3),
        f"{row['spread']:.0%}",
        format_number(row["gb_s"]),
        _percent(row["of_memory"]),
        format_number(row["tflop_s"]),
        _percent(row["of_peak"]),
        *(_percent(row["of_peers"].get(peer)) for peer in peers),
    ]
    return f"| {' | '.join(cells)} |"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _collapsible(title: str, lines: Iterable[str]) -> str:
    indented = "\n".join(f"    {line}" for line in lines)
    return f'??? abstract "{title}"\n\n{indented}'
