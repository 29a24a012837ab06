"""The results as a document and as tables. Losing rows are printed like the others."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.benchmarks.cells import Cell, Row, Verdict

SCHEMA = "rlxweb.bench/1"


def document(
    cells: Sequence[Cell], machine: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """Everything that was measured, with where and how."""
    return {
        "schema": SCHEMA,
        "settings": settings,
        "machine": machine,
        "cells": [cell.as_json() for cell in cells],
        "goals": {
            "met": sum(v.met for cell in cells for v in cell.verdicts),
            "missed": [
                f"{cell.name}: {sentence(v)}"
                for cell in cells
                for v in cell.verdicts
                if not v.met
            ],
        },
        "wrong": [f"{cell.name}: {cell.wrong}" for cell in cells if cell.wrong],
    }


def sentence(verdict: Verdict) -> str:
    """The goal and what came of it, in words."""
    how = "met" if verdict.met else "MISSED"
    return (
        f"{verdict.ours} takes {verdict.ratio:.2f} × {verdict.against} "
        f"(at most {verdict.limit:g}): {how}"
    )


def page(to_stderr: bool) -> Console:
    """A console as wide as the terminal; piped, wide enough for every number."""
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 170)


def show(console: Console, cell: Cell) -> None:
    """One table: every peer, fastest first, and our time as a multiple of each."""
    if cell.wrong:
        console.print(f"[red]{cell.name}: wrong answers: {cell.wrong}[/red]")
        return
    ours = [row for row in cell.rows if row.name in {v.ours for v in cell.verdicts}]
    table = Table(title=cell.name, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("peer", no_wrap=True)
    for head in ("ms", "spread", "first ms", *(_head(row) for row in ours)):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("published ms", justify="right", no_wrap=True)
    table.add_column("on", no_wrap=True)
    for row in sorted(cell.rows, key=lambda one: one.ms):
        table.add_row(*_cells(row, ours), style="bold" if row.ours else None)
    console.print(table)
    for name, why in cell.absent.items():
        console.print(f"  no row of {name}: {why}", style="yellow")
    for verdict in cell.verdicts:
        console.print("  " + sentence(verdict), style="green" if verdict.met else "red")
    if cell.steady:
        grown = {**cell.steady["created"], "live": cell.steady["live_grew_by"]}
        made = ", ".join(f"{count} {name}" for name, count in grown.items())
        console.print(f"  {cell.steady['runs']} more runs made: {made}")


def _head(row: Row) -> str:
    return row.name.replace("rlxweb", "").lstrip(", ") + " ÷ it"


def _cells(row: Row, ours: Sequence[Row]) -> list[str]:
    timing = row.timing
    return [
        row.name,
        f"{row.ms:.3f}",
        f"{timing.spread:.0%}",
        f"{timing.first_ns / 1e6:.1f}",
        *(f"{mine.ms / row.ms:.2f}" for mine in ours),
        "" if row.published is None else f"{row.published:.2f}",
        row.engine.split(" (")[0],
    ]
