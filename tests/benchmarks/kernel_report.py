"""Report of `./dev bench kernels`: one JSON document, and a table for people."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from rich.console import Console

from rlxweb.cli.console import print_lines, print_table
from rlxweb.cli.json_documents import json_document, library_versions
from rlxweb.cost.decision import format_ns
from rlxweb.io.csv_json_npz import finite_or_none

SCHEMA = "rlxweb.bench.gpu/1"
HEADERS = "case engine variant time GB/s memory TFLOP/s peak best".split()
"""memory, peak: the share of what the GPU can do; best: of the fastest contender."""
Document = dict[str, Any]


@dataclass
class KernelResults:
    """Everything measured so far, as the document has it."""

    start_s: float
    facts: dict[str, Any] = field(default_factory=dict)
    latencies: dict[str, Any] = field(default_factory=dict)
    host_estimates: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped_cases: list[str] = field(default_factory=list)
    is_partial: bool = True


RowRecord = Mapping[str, Any]


def results_document(results: KernelResults) -> Document:
    """Return the JSON document."""
    engines = results.facts.get("engines", [])
    roofs = {
        engine["place"]: (engine["memory_gb_s"], engine["f32_tflop_s"])
        for engine in engines
        if engine["memory_gb_s"]
    }
    default_roof = next(iter(roofs.values()), (_copy_bandwidth(results.rows), None))
    return json_document(
        SCHEMA,
        versions=library_versions(),
        machine=f"{platform.machine()}, {os.cpu_count()} cores",
        seconds=round(monotonic() - results.start_s, 3),
        partial=results.is_partial,
        **results.facts,
        smoke=None,
        trips=results.latencies,
        from_host=results.host_estimates,
        rows=[
            {
                **row,
                **_relative_figures(
                    row, results.rows, roofs.get(row["engine"], default_roof)
                ),
            }
            for row in results.rows
        ],
        left_out=results.skipped_cases,
        fell=[],
    )


def _copy_bandwidth(rows: Sequence[RowRecord]) -> float:
    """Return the GB/s that a copy reached, for GPUs whose vendor figure is unknown."""
    copies = (r["bytes"] / r["ns"] for r in rows if r["case"] == "copy" and r["ns"])
    return max(copies, default=math.nan)


def _relative_figures(
    row: RowRecord, rows: Sequence[RowRecord], roof: tuple[float, float | None]
) -> dict[str, Any]:
    """Return the shares of bandwidth, of arithmetic, of the best time and of the
    libraries' times.
    """
    ns = row["ns"] or math.nan
    same = [r for r in rows if _case_key(r) == _case_key(row) and r["ns"]]
    gb_s, tflop_s = row["bytes"] / ns, row["flops"] / ns / 1e3
    peak = roof[1] if roof[1] and "f16" not in row["case"] else math.nan
    return {
        "gb_s": finite_or_none(gb_s),
        "of_memory": finite_or_none(gb_s / roof[0]),
        "tflop_s": finite_or_none(tflop_s),
        "of_peak": finite_or_none(tflop_s / peak),
        "of_best": finite_or_none(min((r["ns"] for r in same), default=math.nan) / ns),
        "of_peers": {
            r["engine"].removesuffix(" by hand"): finite_or_none(r["ns"] / ns)
            for r in same
            if r["by_hand"] and r["ns"] and row["ns"]
        },
    }


def _case_key(row: RowRecord) -> tuple[str, str]:
    return row["case"], row["shape"]


def has_wrong_result(document: Document) -> bool:
    """Return whether any result is wrong."""
    return any(row["judged"] == "wrong" for row in document["rows"])


# --- for people -----------------------------------------------------------------------


def print_report(console: Console, document: Document) -> None:
    """Print the machine, a row per contender, and what is missing and skipped."""
    for line in _machine_lines(document):
        print_lines(console, line)
    peers = list(dict.fromkeys(p for r in document["rows"] for p in r["of_peers"]))
    headers = [*HEADERS, *peers]
    rows = [_table_cells(row, peers) for row in document["rows"]]
    print_table(console, headers, rows, right_aligned=headers[3:], no_wrap=headers)
    for reason in document["left_out"]:
        print_lines(console, f"left out: {reason}")


def _machine_lines(document: Document) -> Iterator[str]:
    """Yield lines about engines, GPUs, missing devices and latencies."""
    for entry in document.get("engines", []):
        yield f"{entry['place']}: {entry['adapter']}, {entry['driver'] or 'no version'}"
    yield from (f"GPU: {line}" for line in document.get("nvidia", []))
    for label, reason in document.get("missing", {}).items():
        yield f"no {label}: {reason}"
    for name, version in document.get("peers", {}).items():
        yield f"{name} by hand: {version}"
    for label, latencies in document["trips"].items():
        yield from (f"{label}: {text}" for text in _latency_lines(latencies))
    for label, parts in document["from_host"].items():
        yield f"{label}: {_host_estimate_line(parts)}"
        for entry in parts.get("paths", []):
            yield f"{label}: {describe_path(entry)} {entry['ns'] / 1e6:,.1f} ms"


def _latency_lines(latencies: Mapping[str, Any]) -> list[str]:
    labels = {
        "small_run_ns": "a small run",
        "round_trip_ns": "round trip",
        "launch_ns": "a further launch",
        "encode_and_submit_ns": "encode and submit",
        "encode_further_ns": "encode a further launch",
        "wait_and_map_ns": "wait and map",
    }
    times = [
        f"{label} {format_ns(latencies[key])}"
        for key, label in labels.items()
        if key in latencies
    ]
    speeds: dict[str, list[str]] = {}
    for transfer in latencies.get("transfers", []):
        speed = (
            "not possible" if transfer["gb_s"] is None else f"{transfer['gb_s']:.1f}"
        )
        method = f"{transfer['way']} {transfer['path']}".rstrip()
        speeds.setdefault(method, []).append(f"{transfer['mib']} MiB {speed}")
    transfer_lines = [
        f"{method}, GB/s: {', '.join(speed_texts)}"
        for method, speed_texts in speeds.items()
    ]
    failed = [latencies["why"]] if "why" in latencies else []
    return (
        [", ".join(times), *transfer_lines, *failed]
        if times
        else transfer_lines + failed
    )


def _host_estimate_line(parts: Mapping[str, Any]) -> str:
    if "whole" not in parts:
        return f"Welch peaks from the host: {parts['why']}"
    rows_text = (
        f"{parts['bytes'] / 1e6:,.0f} MB, {parts['rows']:,} rows of {parts['n']}"
    )
    labels = {"put": "brought there", "there": "computed there", "rest": "the rest"}
    part_times = [
        f"{label} {parts[key] / 1e6:,.1f} ms"
        for key, label in labels.items()
        if key in parts
    ]
    total_text = f"Welch peaks of {rows_text} in {parts['whole'] / 1e6:,.1f} ms"
    return f"{total_text} ({', '.join(part_times) or parts.get('why', '')})"


def describe_path(timing: Mapping[str, Any]) -> str:
    """Describe how an estimate's rows came to the device."""
    batching = "overlapping" if timing["overlaps"] else "one after another"
    return f"the same, bytes {timing['path'] or 'as ever'}, batches {batching}:"


def _table_cells(row: RowRecord, peers: Sequence[str]) -> tuple[str, ...]:
    variant = row["variant"] or (f"({row['chosen']})" if row["chosen"] else "")
    row_labels = f"{row['case']} {row['shape']}", row["engine"], variant
    if row["ns"] is None:
        return (*row_labels, row["why"], *[""] * (len(HEADERS) - 4 + len(peers)))
    return (
        *row_labels,
        format_ns(row["ns"]),
        f"{row['gb_s']:.1f}",
        _format_share(row["of_memory"]),
        f"{row['tflop_s']:.3g}",
        _format_share(row["of_peak"]),
        _format_share(row["of_best"]),
        *(_format_share(row["of_peers"].get(peer)) for peer in peers),
    )


def _format_share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def case_summary(rows: Sequence[RowRecord]) -> str:
    """Return one line about a finished case: its fastest contender and what failed."""
    timed = [row for row in rows if row["ns"]]
    best = min(timed, key=lambda row: row["ns"], default=None)
    label = f"{rows[0]['case']} {rows[0]['shape']}"
    failed = (
        f", {len(rows) - len(timed)} without a time" if len(timed) < len(rows) else ""
    )
    if best is None:
        return f"{label}: {rows[0]['why']}"
    winner = best["variant"] or best["chosen"] or best["engine"]
    return f"{label}: {format_ns(best['ns'])} by {winner} of {len(timed)}{failed}"
