"""`python -m tests.benchmarks.in_tab`: rlxweb, NumPy and jax-js in one page.

Two things are measured: the time from navigation to the first result, cold (a browser
that has never seen the site) and warm (the same browser again), by Python in a bare
page, in each demo as the demo itself shows it, and by an exported module without
Python; and kernels and whole calls, all peers of a cell
interleaved in one page, medians with their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserType, Page, sync_playwright
from rich import box
from rich.console import Console
from rich.table import Table

import rlxweb
from tests.benchmarks.machine import facts
from tests.benchmarks.npm_packages import JAX_JS, unpacked
from tests.benchmarks.tab_server import FLAGS, START_MS, chromium_there, served

ROOT = Path(__file__).resolve().parents[2]
CELLS = [
    *(("welch", n) for n in (256, 1024)),
    *(("matmul", n) for n in (256, 512, 1024)),
    ("softmax", 1024),
    ("attention", 128),
    *(("training", n) for n in (128, 512)),
]
DEMOS = ("live", "check", "playground")
SCHEMA = "rlxweb.bench.tab/2"


def main(args: list[str] | None = None) -> int:
    """0 when every peer ran, else 1."""
    asked = parser().parse_args(args)
    console = Console(width=110)
    site = Path(asked.site)
    if not (site / "runtime").is_dir():
        sys.exit(f"{site} holds no built site; run ./dev site first")
    with (
        tempfile.TemporaryDirectory() as work,
        served(site, beside(Path(work))) as url,
        sync_playwright() as playwright,
    ):
        made = {
            "schema": SCHEMA,
            "machine": facts(),
            "peer": str(JAX_JS),
            **measured(playwright.chromium, url, asked),
        }
    show(console, made)
    if asked.json:
        Path(asked.json).write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    return int(any("error" in r for c in made["cells"] for r in c["rows"]))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="tests.benchmarks.in_tab", description=__doc__)
    made.add_argument("--site", default=str(ROOT / "build" / "site"))
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument(
        "--starts", type=int, default=5, help="cold starts, each warm too"
    )
    made.add_argument("--json", metavar="FILE", help="write the record there")
    made.add_argument("--only", action="append", default=[], metavar="PART")
    return made


def beside(work: Path) -> dict[str, Path]:
    """What the pages read beside the site: jax-js's modules and an export."""
    return {"jax": unpacked(JAX_JS, work), "plan": exported(work)}


def exported(work: Path) -> Path:
    """The folder of an export that does what first.html does in Python."""
    return rlxweb.export_welch(work / "exported", 256, 384, 256.0, 256, 16).folder


def measured(
    chromium: BrowserType, url: str, asked: argparse.Namespace
) -> dict[str, Any]:
    """Starts first, while nothing else has warmed the machine, then the cells."""
    path = chromium_there()
    starts = [_start(chromium, path, url) for _ in range(asked.starts)]
    browser = chromium.launch(executable_path=path, args=[*FLAGS])
    try:
        page = browser.new_page()
        page.goto(f"{url}_bench/bench.html")
        page.wait_for_function("globalThis.isReady", timeout=START_MS)
        cells = []
        for kind, n in CELLS:
            if asked.only and not any(p in f"{kind} {n}" for p in asked.only):
                continue
            ask = f"cell('{kind}', {n}, {asked.rounds}, 60000)"
            cells.append({"kind": kind, "n": n, "rows": page.evaluate(ask)})
        return {
            "browser": f"Chromium {browser.version}",
            "adapter": page.evaluate("adapter"),
            "starts": starts,
            "cells": cells,
        }
    finally:
        browser.close()


def _start(chromium: BrowserType, path: str, url: str) -> dict[str, Any]:
    """Marks of a first navigation and of a second one, ms since each began."""
    found: dict[str, Any] = {"cold": {}, "warm": {}}
    demos = [partial(_demo_mark, name) for name in DEMOS]
    for measure in (_python_marks, *demos, _exported_mark):
        with tempfile.TemporaryDirectory() as profile:
            for marks in found.values():
                context = chromium.launch_persistent_context(
                    profile, executable_path=path, args=[*FLAGS]
                )
                marks.update(measure(context.new_page(), url))
                context.close()
    return found


def _python_marks(page: Page, url: str) -> Any:
    page.goto(f"{url}_bench/first.html")
    page.wait_for_function("globalThis.marks", timeout=START_MS)
    return page.evaluate("marks")


def _demo_mark(name: str, page: Page, url: str) -> dict[str, float]:
    """The time until the visitor of a demo sees something, as the demo itself says."""
    page.goto(f"{url}demo/{name}/")
    page.wait_for_selector(".start[data-over]", state="attached", timeout=START_MS)
    return {name: _first_result(page)}


def _exported_mark(page: Page, url: str) -> dict[str, float]:
    page.goto(f"{url}_bench/plan/")
    page.wait_for_selector("html[data-state=right]", timeout=START_MS)
    return {"exported": _first_result(page)}


def _first_result(page: Page) -> float:
    marks = "performance.getEntriesByName('rlxweb-first-result')"
    return float(page.evaluate(f"{marks}[0].startTime"))


def show(console: Console, made: dict[str, Any]) -> None:
    """Print both tables; ratio: the peer's time over ours for the same work."""
    console.print(f"{made['browser']}, {made['adapter']}", highlight=False)
    names = ("python", "imported", "adapter", "first")
    known = (*names, *DEMOS, "exported")
    heads = ("Python up", "imported", "adapter", "first", "after Python")
    heads = (*heads, *DEMOS, "without Python")
    table = Table("start", *heads, box=box.SIMPLE_HEAD)
    for kind in ("cold", "warm"):
        marks = [s[kind] for s in made["starts"]]
        if marks:
            middle = {n: statistics.median(m[n] for m in marks) for n in known}
            after = statistics.median(m["first"] - m["python"] for m in marks)
            times = [f"{middle[n]:,.0f} ms" for n in names]
            times.append(f"{after:,.0f} ms")
            times += [f"{middle[name]:,.0f} ms" for name in (*DEMOS, "exported")]
            table.add_row(kind, *times)
    console.print(table)
    heads = ("work", "peer", "ms", "spread", "first ms", "n", "÷ rlxweb")
    table = Table(*heads, box=box.SIMPLE_HEAD)
    for cell in made["cells"]:
        ours = {r["name"]: r["ms"] for r in cell["rows"] if "ms" in r}
        for row in cell["rows"]:
            work = f"{cell['kind']} {cell['n']}"
            if "error" in row:
                table.add_row(work, row["name"], row["error"], "", "", "", "")
                continue
            way = "resident" if "resident" in row["name"] else "in+out"
            base = ours.get(f"rlxweb {way}", ours.get("rlxweb in+out"))
            table.add_row(
                work,
                row["name"],
                f"{row['ms']:.2f}",
                f"{row['spread']:.0%}",
                f"{row['first_ms']:.0f}",
                str(row["samples"]),
                f"{row['ms'] / base:.2f}" if base else "",
            )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
