"""`python -m tests.benchmarks.browser_benchmark`: rlxweb, NumPy and jax-js in one page.

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
from tests.benchmarks.benchmark_site_server import (
    FLAGS,
    START_MS,
    chromium_path,
    serve_site,
)
from tests.benchmarks.machine_facts import collect_facts
from tests.benchmarks.npm_packages import JAX_JS, unpack_package

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
    """Return 0 when every peer ran, else 1."""
    arguments = build_parser().parse_args(args)
    console = Console(width=110)
    site = Path(arguments.site)
    if not (site / "runtime").is_dir():
        sys.exit(f"{site} holds no built site; run ./dev site first")
    with (
        tempfile.TemporaryDirectory() as work_dir,
        serve_site(site, extra_folders(Path(work_dir))) as url,
        sync_playwright() as playwright,
    ):
        report = {
            "schema": SCHEMA,
            "machine": collect_facts(),
            "peer": str(JAX_JS),
            **measure_in_browser(playwright.chromium, url, arguments),
        }
    print_report(console, report)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return int(any("error" in r for c in report["cells"] for r in c["rows"]))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(
        prog="tests.benchmarks.browser_benchmark", description=__doc__
    )
    parser.add_argument("--site", default=str(ROOT / "build" / "site"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--starts", type=int, default=5, help="cold starts, each warm too"
    )
    parser.add_argument("--json", metavar="FILE", help="write the record there")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    return parser


def extra_folders(work_dir: Path) -> dict[str, Path]:
    """Return what the pages read besides the site: jax-js's modules and an export."""
    return {"jax": unpack_package(JAX_JS, work_dir), "plan": export_plan(work_dir)}


def export_plan(work_dir: Path) -> Path:
    """Export what first.html does in Python and return the folder."""
    return rlxweb.export_welch(work_dir / "exported", 256, 384, 256.0, 256, 16).folder


def measure_in_browser(
    chromium: BrowserType, url: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure starts first, while the machine is cold, then the cells."""
    path = chromium_path()
    starts = [_measure_start(chromium, path, url) for _ in range(arguments.starts)]
    browser = chromium.launch(executable_path=path, args=[*FLAGS])
    try:
        page = browser.new_page()
        page.goto(f"{url}_bench/bench.html")
        page.wait_for_function("globalThis.isReady", timeout=START_MS)
        cells = []
        for kind, n in CELLS:
            if arguments.only and not any(p in f"{kind} {n}" for p in arguments.only):
                continue
            script = f"cell('{kind}', {n}, {arguments.rounds}, 60000)"
            cells.append({"kind": kind, "n": n, "rows": page.evaluate(script)})
        return {
            "browser": f"Chromium {browser.version}",
            "adapter": page.evaluate("adapter"),
            "starts": starts,
            "cells": cells,
        }
    finally:
        browser.close()


def _measure_start(chromium: BrowserType, path: str, url: str) -> dict[str, Any]:
    """Return the marks of a first navigation and of a second one, ms since each
    began.
    """
    marks_by_kind: dict[str, Any] = {"cold": {}, "warm": {}}
    demos = [partial(_demo_mark, name) for name in DEMOS]
    for measure in (_python_marks, *demos, _exported_mark):
        with tempfile.TemporaryDirectory() as profile:
            for marks in marks_by_kind.values():
                context = chromium.launch_persistent_context(
                    profile, executable_path=path, args=[*FLAGS]
                )
                marks.update(measure(context.new_page(), url))
                context.close()
    return marks_by_kind


def _python_marks(page: Page, url: str) -> Any:
    page.goto(f"{url}_bench/first.html")
    page.wait_for_function("globalThis.marks", timeout=START_MS)
    return page.evaluate("marks")


def _demo_mark(name: str, page: Page, url: str) -> dict[str, float]:
    """Return the time until a demo shows its first result, as the demo itself measures
    it.
    """
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


def print_report(console: Console, report: dict[str, Any]) -> None:
    """Print both tables; ratio: the peer's time over ours for the same work."""
    console.print(f"{report['browser']}, {report['adapter']}", highlight=False)
    names = ("python", "imported", "adapter", "first")
    all_names = (*names, *DEMOS, "exported")
    headers = ("Python up", "imported", "adapter", "first", "after Python")
    headers = (*headers, *DEMOS, "without Python")
    table = Table("start", *headers, box=box.SIMPLE_HEAD)
    for kind in ("cold", "warm"):
        marks = [s[kind] for s in report["starts"]]
        if marks:
            medians = {n: statistics.median(m[n] for m in marks) for n in all_names}
            after_python = statistics.median(m["first"] - m["python"] for m in marks)
            times = [f"{medians[n]:,.0f} ms" for n in names]
            times.append(f"{after_python:,.0f} ms")
            times += [f"{medians[name]:,.0f} ms" for name in (*DEMOS, "exported")]
            table.add_row(kind, *times)
    console.print(table)
    headers = ("work", "peer", "ms", "spread", "first ms", "n", "÷ rlxweb")
    table = Table(*headers, box=box.SIMPLE_HEAD)
    for cell in report["cells"]:
        ours = {r["name"]: r["ms"] for r in cell["rows"] if "ms" in r}
        for row in cell["rows"]:
            label = f"{cell['kind']} {cell['n']}"
            if "error" in row:
                table.add_row(label, row["name"], row["error"], "", "", "", "")
                continue
            placement = "resident" if "resident" in row["name"] else "in+out"
            our_ms = ours.get(f"rlxweb {placement}", ours.get("rlxweb in+out"))
            table.add_row(
                label,
                row["name"],
                f"{row['ms']:.2f}",
                f"{row['spread']:.0%}",
                f"{row['first_ms']:.0f}",
                str(row["samples"]),
                f"{row['ms'] / our_ms:.2f}" if our_ms else "",
            )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
