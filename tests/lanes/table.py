"""The counts of the FFT and Welch kernels for GPUs, as a record and as a table.

`python -m tests.lanes.table` counts, compiles where nvcc is and writes the record;
the manual's table is `markdown` of it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlxweb.ir.lowering import Recipe
from tests.lanes.cuda import compiled
from tests.lanes.kernel import run
from tests.lanes.shapes import DEVICE, WAYS, fft, launch_of, welch

RECORD = Path(__file__).with_name("gpu-kernels.json")
TRANSFORMS = (64, 256, 1024, 4096)
JOBS = ((256, 2), (256, 8), (1024, 2), (1024, 8), (4096, 2))
ROWS = 8
HEAD = (
    "| kernel | way | shared-memory wavefronts a row | of conflicts | barriers | "
    "registers |\n|---|---|---|---|---|---|"
)


def kernels() -> list[tuple[str, str, Recipe, list[int], int]]:
    """(kernel, way, recipe, shapes of the inputs, numbers that come out)."""
    found: list[tuple[str, str, Recipe, list[int], int]] = []
    for way in WAYS:
        for n in TRANSFORMS:
            size = 2 * n * ROWS
            found.append((f"FFT {n}", way, fft(way, n, ROWS), [size], size))
        for n, segments in JOBS:
            name = f"Welch peaks {n}, {segments} segments"
            made = welch(way, n, segments, rows=ROWS)
            sizes = [n // 2 * (segments + 1) * ROWS, n]
            found.append((name, way, made, sizes, 32 * ROWS))
    return found


def counted(recipe: Recipe, sizes: Sequence[int], out: int) -> dict[str, float]:
    """What is done for a row."""
    rng = np.random.default_rng(0)
    groups = run(recipe, [rng.standard_normal(n) for n in sizes], out, DEVICE)[1]
    total = {
        name: sum(getattr(one, name) for one in groups) / ROWS
        for name in ("requests", "wavefronts", "sectors", "ideal")
    }
    return {
        **total,
        "worst": max(c.worst for c in groups),
        "barriers": groups[0].barriers,
    }


def rows(with_registers: bool) -> list[dict[str, Any]]:
    """Every kernel's counts."""
    found = []
    for name, way, recipe, sizes, out in kernels():
        one: dict[str, Any] = {"kernel": name, "way": way}
        one |= counted(recipe, sizes, out)
        if with_registers:
            one |= compiled(launch_of(recipe))
        found.append(one)
    return found


def markdown(record: Sequence[dict[str, Any]]) -> str:
    """The manual's table, kernel by kernel."""
    names = dict.fromkeys(one["kernel"] for one in record)
    lines = [HEAD]
    for name in names:
        for one in (one for one in record if one["kernel"] == name):
            lost = one["wavefronts"] / one["requests"]
            lines.append(
                f"| {name} | {one['way']} | {one['wavefronts']:,.0f} | {lost:.1f}× | "
                f"{one['barriers']} | {one.get('registers', '')} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    made = rows(shutil.which("nvcc") is not None)
    RECORD.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(markdown(made))
