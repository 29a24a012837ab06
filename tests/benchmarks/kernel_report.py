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

from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import say, show_table
from rlxweb.decision.terms import human_ns
from rlxweb.io.writers import finite

SCHEMA = "rlxweb.bench.gpu/1"
HEADS = "case engine variant time GB/s memory TFLOP/s peak best".split()
"""memory, peak: the share of what the GPU can do; best: of the fastest contender."""
Document = dict[str, Any]


@dataclass
class Found:
    """Everything that is known so far, as the record has it."""

    began: float
    facts: dict[str, Any] = field(default_factory=dict)
    trips: dict[str, Any] = field(default_factory=dict)
    from_host: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    is_partial: bool = True


Row = Mapping[str, Any]


def record_of(found: Found) -> Document:
    """The JSON document."""
    engines = found.facts.get("engines", [])
    roofs = {
        one["place"]: (one["memory_gb_s"], one["f32_tflop_s"])
        for one in engines
        if one["memory_gb_s"]
    }
    made_by = next(iter(roofs.values()), (_copied(found.rows), None))
    return document(
        SCHEMA,
        versions=versions(),
        machine=f"{platform.machine()}, {os.cpu_count()} cores",
        seconds=round(monotonic() - found.began, 3),
        partial=found.is_partial,
        **found.facts,
        smoke=None,
        trips=found.trips,
        from_host=found.from_host,
        rows=[
            {**row, **_shares(row, found.rows, roofs.get(row["engine"], made_by))}
            for row in found.rows
        ],
        left_out=found.left_out,
        fell=[],
    )


def _copied(rows: Sequence[Row]) -> float:
    """GB/s that a copy reached, where no maker says what the memory can do."""
    copies = (r["bytes"] / r["ns"] for r in rows if r["case"] == "copy" and r["ns"])
    return max(copies, default=math.nan)


def _shares(
    row: Row, rows: Sequence[Row], roof: tuple[float, float | None]
) -> dict[str, Any]:
    """Shares of bandwidth, of arithmetic, of the best time and of those by hand."""
    ns = row["ns"] or math.nan
    same = [r for r in rows if _case(r) == _case(row) and r["ns"]]
    gb_s, tflop_s = row["bytes"] / ns, row["flops"] / ns / 1e3
    peak = roof[1] if roof[1] and "f16" not in row["case"] else math.nan
    return {
        "gb_s": finite(gb_s),
        "of_memory": finite(gb_s / roof[0]),
        "tflop_s": finite(tflop_s),
        "of_peak": finite(tflop_s / peak),
        "of_best": finite(min((r["ns"] for r in same), default=math.nan) / ns),
        "of_peers": {
            r["engine"].removesuffix(" by hand"): finite(r["ns"] / ns)
            for r in same
            if r["by_hand"] and r["ns"] and row["ns"]
        },
    }


def _case(row: Row) -> tuple[str, str]:
    return row["case"], row["shape"]


def is_wrong(record: Document) -> bool:
    """Is any result wrong?"""
    return any(row["judged"] == "wrong" for row in record["rows"])


# --- for people -----------------------------------------------------------------------


def show(console: Console, record: Document) -> None:
    """The machine, a row a contender, and what is missing and left out."""
    for line in _around(record):
        say(console, line)
    peers = list(dict.fromkeys(p for r in record["rows"] for p in r["of_peers"]))
    heads = [*HEADS, *peers]
    rows = [_cells(one, peers) for one in record["rows"]]
    show_table(console, heads, rows, right=heads[3:], whole=heads)
    for why in record["left_out"]:
        say(console, f"left out: {why}")


def _around(record: Document) -> Iterator[str]:
    """Engines, GPUs, what is missing, trips."""
    for one in record.get("engines", []):
        yield f"{one['place']}: {one['adapter']}, {one['driver'] or 'no version'}"
    yield from (f"GPU: {line}" for line in record.get("nvidia", []))
    for label, why in record.get("missing", {}).items():
        yield f"no {label}: {why}"
    for name, version in record.get("peers", {}).items():
        yield f"{name} by hand: {version}"
    for label, trips in record["trips"].items():
        yield from (f"{label}: {said}" for said in _trips(trips))
    for label, parts in record["from_host"].items():
        yield f"{label}: {_from_host(parts)}"
        for one in parts.get("paths", []):
            yield f"{label}: {path_of(one)} {one['ns'] / 1e6:,.1f} ms"


def _trips(trips: Mapping[str, Any]) -> list[str]:
    named = {
        "small_run_ns": "a small run",
        "round_trip_ns": "round trip",
        "launch_ns": "a further launch",
        "encode_and_submit_ns": "encode and submit",
        "encode_further_ns": "encode a further launch",
        "wait_and_map_ns": "wait and map",
    }
    times = [f"{w} {human_ns(trips[key])}" for key, w in named.items() if key in trips]
    ways: dict[str, list[str]] = {}
    for one in trips.get("transfers", []):
        speed = "not possible" if one["gb_s"] is None else f"{one['gb_s']:.1f}"
        way = f"{one['way']} {one['path']}".rstrip()
        ways.setdefault(way, []).append(f"{one['mib']} MiB {speed}")
    moved = [f"{way}, GB/s: {', '.join(told)}" for way, told in ways.items()]
    failed = [trips["why"]] if "why" in trips else []
    return [", ".join(times), *moved, *failed] if times else moved + failed


def _from_host(parts: Mapping[str, Any]) -> str:
    if "whole" not in parts:
        return f"Welch peaks from the host: {parts['why']}"
    what = f"{parts['bytes'] / 1e6:,.0f} MB, {parts['rows']:,} rows of {parts['n']}"
    named = {"put": "brought there", "there": "computed there", "rest": "the rest"}
    told = [f"{w} {parts[k] / 1e6:,.1f} ms" for k, w in named.items() if k in parts]
    whole = f"Welch peaks of {what} in {parts['whole'] / 1e6:,.1f} ms"
    return f"{whole} ({', '.join(told) or parts.get('why', '')})"


def path_of(one: Mapping[str, Any]) -> str:
    """How an estimate's rows came to the device, in words."""
    how = "overlapping" if one["overlaps"] else "one after another"
    return f"the same, bytes {one['path'] or 'as ever'}, batches {how}:"


def _cells(one: Row, peers: Sequence[str]) -> tuple[str, ...]:
    way = one["variant"] or (f"({one['chosen']})" if one["chosen"] else "")
    head = f"{one['case']} {one['shape']}", one["engine"], way
    if one["ns"] is None:
        return (*head, one["why"], *[""] * (len(HEADS) - 4 + len(peers)))
    return (
        *head,
        human_ns(one["ns"]),
        f"{one['gb_s']:.1f}",
        _share(one["of_memory"]),
        f"{one['tflop_s']:.3g}",
        _share(one["of_peak"]),
        _share(one["of_best"]),
        *(_share(one["of_peers"].get(peer)) for peer in peers),
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def told(rows: Sequence[Row]) -> str:
    """One line of a case that is done: its fastest and what failed."""
    timed = [row for row in rows if row["ns"]]
    best = min(timed, key=lambda row: row["ns"], default=None)
    label = f"{rows[0]['case']} {rows[0]['shape']}"
    failed = (
        f", {len(rows) - len(timed)} without a time" if len(timed) < len(rows) else ""
    )
    if best is None:
        return f"{label}: {rows[0]['why']}"
    who = best["variant"] or best["chosen"] or best["engine"]
    return f"{label}: {human_ns(best['ns'])} by {who} of {len(timed)}{failed}"
