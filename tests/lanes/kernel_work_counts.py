"""Counts of the work of FFT and Welch GPU kernels (memory traffic, bank conflicts,
barriers, registers), as a JSON file and as a Markdown table.

`python -m tests.lanes.kernel_work_counts` counts, compiles where nvcc is and writes the
record; the manual's table is `markdown_table` of it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlxweb.ir.lowering import KernelPlan
from tests.lanes.fft_welch_kernel_plans import (
    DEVICE,
    KERNEL_PLANNERS,
    fft_plan,
    first_launch,
    welch_plan,
)
from tests.lanes.kernel_plan_interpreter import run_plan
from tests.lanes.wgsl_to_cuda import compile_with_nvcc

COUNTS_FILE = Path(__file__).with_name("gpu-kernels.json")
FFT_SIZES = (64, 256, 1024, 4096)
WELCH_SIZES = ((256, 2), (256, 8), (1024, 2), (1024, 8), (4096, 2))
ROWS = 8
TABLE_HEAD = (
    "| work | kernel variant | shared-memory wavefronts a row | of conflicts | "
    "barriers | registers |\n|---|---|---|---|---|---|"
)


def kernel_cases() -> list[tuple[str, str, KernelPlan, list[int], int]]:
    """Return (kernel, variant, plan, sizes of the inputs, output size) of each counted
    kernel.
    """
    cases: list[tuple[str, str, KernelPlan, list[int], int]] = []
    for variant in KERNEL_PLANNERS:
        for n in FFT_SIZES:
            size = 2 * n * ROWS
            cases.append(
                (f"FFT {n}", variant, fft_plan(variant, n, ROWS), [size], size)
            )
        for n, segments in WELCH_SIZES:
            name = f"Welch peaks {n}, {segments} segments"
            plan = welch_plan(variant, n, segments, rows=ROWS)
            sizes = [n // 2 * (segments + 1) * ROWS, n]
            cases.append((name, variant, plan, sizes, 32 * ROWS))
    return cases


def count_per_row(
    plan: KernelPlan, sizes: Sequence[int], output_size: int
) -> dict[str, float]:
    """Return the counts of a kernel plan per row."""
    rng = np.random.default_rng(0)
    groups = run_plan(
        plan, [rng.standard_normal(n) for n in sizes], output_size, DEVICE
    )[1]
    total = {
        name: sum(getattr(group, name) for group in groups) / ROWS
        for name in ("requests", "wavefronts", "sectors", "ideal")
    }
    return {
        **total,
        "worst": max(c.worst for c in groups),
        "barriers": groups[0].barriers,
    }


def count_kernels(with_registers: bool) -> list[dict[str, Any]]:
    """Return the counts of every kernel."""
    entries = []
    for name, variant, plan, sizes, output_size in kernel_cases():
        entry: dict[str, Any] = {"kernel": name, "way": variant}
        entry |= count_per_row(plan, sizes, output_size)
        if with_registers:
            entry |= compile_with_nvcc(first_launch(plan))
        entries.append(entry)
    return entries


def markdown_table(entries: Sequence[dict[str, Any]]) -> str:
    """Return the manual's table, kernel by kernel."""
    names = dict.fromkeys(entry["kernel"] for entry in entries)
    lines = [TABLE_HEAD]
    for name in names:
        for entry in (entry for entry in entries if entry["kernel"] == name):
            conflict_ratio = entry["wavefronts"] / entry["requests"]
            lines.append(
                f"| {name} | {entry['way']} | {entry['wavefronts']:,.0f} | "
                f"{conflict_ratio:.1f}× | "
                f"{entry['barriers']} | {entry.get('registers', '')} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    entries = count_kernels(shutil.which("nvcc") is not None)
    COUNTS_FILE.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    print(markdown_table(entries))
