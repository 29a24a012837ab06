"""Benchmark results as a JSON document and as tables, losing rows included."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.benchmarks.benchmark_cells import CellResult, GoalResult, PeerResult

SCHEMA = "rlxweb.bench/1"


def document(
    cells: Sequence[CellResult], machine: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """Return everything that was measured, with the machine and the settings."""
    return {
        "schema": SCHEMA,
        "settings": settings,
        "machine": machine,
        "cells": [cell.as_json() for cell in cells],
        "goals": {
            "met": sum(v.is_met for cell in cells for v in cell.goal_results),
            "missed": [
                f"{cell.name}: {verdict_sentence(v)}"
                for cell in cells
                for v in cell.goal_results
                if not v.is_met
            ],
        },
        "wrong": [
            f"{cell.name}: {cell.answer_error}" for cell in cells if cell.answer_error
        ],
    }


def verdict_sentence(verdict: GoalResult) -> str:
    """Return a sentence with the goal and whether it was met."""
    outcome = "met" if verdict.is_met else "MISSED"
    return (
        f"{verdict.ours} takes {verdict.ratio:.2f} × {verdict.against} "
        f"(at most {verdict.limit:g}): {outcome}"
    )


def create_console(to_stderr: bool) -> Console:
    """Create a console as wide as the terminal, or wide enough for every number if
    piped.
    """
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 170)


def print_cell(console: Console, cell: CellResult) -> None:
    """Print one table: every peer, fastest first, and our time as a multiple of
    each.
    """
    if cell.answer_error:
        console.print(f"[red]{cell.name}: wrong answers: {cell.answer_error}[/red]")
        return
    ours = [row for row in cell.rows if row.name in {v.ours for v in cell.goal_results}]
    table = Table(title=cell.name, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("peer", no_wrap=True)
    for heading in ("ms", "spread", "first ms", *(_ratio_heading(row) for row in ours)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("published ms", justify="right", no_wrap=True)
    table.add_column("on", no_wrap=True)
    for row in sorted(cell.rows, key=lambda timed_row: timed_row.ms):
        table.add_row(*_row_texts(row, ours), style="bold" if row.is_ours else None)
    console.print(table)
    for name, reason in cell.absent_peers.items():
        console.print(f"  no row of {name}: {reason}", style="yellow")
    for verdict in cell.goal_results:
        console.print(
            "  " + verdict_sentence(verdict), style="green" if verdict.is_met else "red"
        )
    if cell.resource_growth:
        growth = {
            **cell.resource_growth["created"],
            "live": cell.resource_growth["live_grew_by"],
        }
        growth_text = ", ".join(f"{count} {name}" for name, count in growth.items())
        console.print(f"  {cell.resource_growth['runs']} more runs made: {growth_text}")


def _ratio_heading(row: PeerResult) -> str:
    return row.name.replace("rlxweb", "").lstrip(", ") + " ÷ it"


def _row_texts(row: PeerResult, ours: Sequence[PeerResult]) -> list[str]:
    timing = row.timing
    return [
        row.name,
        f"{row.ms:.3f}",
        f"{timing.spread:.0%}",
        f"{timing.first_ns / 1e6:.1f}",
        *(f"{mine.ms / row.ms:.2f}" for mine in ours),
        "" if row.published_ms is None else f"{row.published_ms:.2f}",
        row.engine.split(" (")[0],
    ]
