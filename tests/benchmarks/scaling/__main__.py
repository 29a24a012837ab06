"""`python -m tests.benchmarks.scaling`: recordings on one and on many workers."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.report import page
from tests.benchmarks.scaling.measure import (
    CHUNKS,
    DEVICE,
    ROWS,
    SIZES,
    WIDE,
    Size,
    measured,
)
from tests.benchmarks.scaling.record import OVER, document, overhead


def main(args: Sequence[str] | None = None) -> int:
    """0 when work takes at most 5 % more on a worker than without, else 1."""
    asked = parser().parse_args(args)
    sizes = [Size(4, 2), Size(8, 2)] if asked.quick else list(SIZES)
    chunk = (2, 8, WIDE) if asked.quick else (CHUNKS, ROWS, WIDE)
    rounds = 2 if asked.quick else asked.rounds
    with tempfile.TemporaryDirectory() as folder:
        found = measured(sizes, chunk, rounds, Path(folder))
    made = document(found, asked.rounds, DEVICE)
    show(made)
    if asked.json:
        Path(asked.json).write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    return int(asked.check and overhead(made) > OVER)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="./dev bench cluster", description=__doc__)
    made.add_argument("--rounds", type=int, default=7, help="in turns (default: 7)")
    made.add_argument("--quick", action="store_true", help="2 short rounds; no result")
    made.add_argument("--json", metavar="FILE", help="write the record there")
    made.add_argument("--check", action="store_true", help="a missed goal is exit 1")
    return made


def show(made: dict[str, Any]) -> None:
    """The measured cells and the limits, losing rows too."""
    console = page(to_stderr=False)
    for cell in made["cells"]:
        simulated = (
            f"; simulated {cell['simulated_one_ms']:.2f} and "
            f"{cell['simulated_two_ms']:.2f}"
        )
        console.print(f"recording of {told(cell)}{simulated}", highlight=False)
    console.print(f"chunk of {told(made['array'])}", highlight=False)
    per_task = ", ".join(f"{k} {1e3 * v:.2f} ms" for k, v in made["costs"].items())
    console.print(f"a task beside its work: {per_task}", highlight=False)
    for one in made["simulated"]:
        last = one["points"][-1]
        console.print(
            f"{one['nbytes'] / 1e6:.1f} MB, {one['storage']}: at {last['workers']} "
            f"workers {last['per_second']:.0f} a second, limit {last['limit']}",
            highlight=False,
        )
    word = "met" if overhead(made) <= OVER else "MISSED"
    console.print(f"more on one worker, at most {OVER:+.0%}: {word}")


def told(cell: dict[str, Any]) -> str:
    """Return a line that tells the measured times of the scaling."""
    return (
        f"{cell['nbytes'] / 1e6:.1f} MB: here {cell['here_ms']:.2f} ms, one worker "
        f"{cell['one_ms']:.2f} ({cell['one_more']:+.1%}), two {cell['two_ms']:.2f}, "
        f"two processes without a cluster {cell['pair_ms']:.2f}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
