"""`python -m tests.benchmarks.scaling`: recordings on one and on many workers."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.report import create_console
from tests.benchmarks.scaling.dask_worker_timing import (
    CHUNKS,
    DEVICE,
    ROW_LENGTH,
    ROWS,
    SIZES,
    RecordingSet,
    measure_scaling,
)
from tests.benchmarks.scaling.result_document import (
    MAX_OVERHEAD,
    document,
    worst_overhead,
)


def main(args: Sequence[str] | None = None) -> int:
    """Return 0 when work takes at most 5 % more on a worker than without, else 1."""
    options = create_parser().parse_args(args)
    sizes = [RecordingSet(4, 2), RecordingSet(8, 2)] if options.quick else list(SIZES)
    chunk = (2, 8, ROW_LENGTH) if options.quick else (CHUNKS, ROWS, ROW_LENGTH)
    rounds = 2 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as folder:
        measurements = measure_scaling(sizes, chunk, rounds, Path(folder))
    result = document(measurements, options.rounds, DEVICE)
    print_result(result)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return int(options.check and worst_overhead(result) > MAX_OVERHEAD)


def create_parser() -> argparse.ArgumentParser:
    """Create the command's argument parser."""
    argument_parser = argparse.ArgumentParser(
        prog="./dev bench cluster", description=__doc__
    )
    argument_parser.add_argument(
        "--rounds", type=int, default=7, help="in turns (default: 7)"
    )
    argument_parser.add_argument(
        "--quick", action="store_true", help="2 short rounds; no result"
    )
    argument_parser.add_argument(
        "--json", metavar="FILE", help="write the record there"
    )
    argument_parser.add_argument(
        "--check", action="store_true", help="a missed goal is exit 1"
    )
    return argument_parser


def print_result(result: dict[str, Any]) -> None:
    """Print the measured cells and the limits, losing rows too."""
    console = create_console(to_stderr=False)
    for cell in result["cells"]:
        simulated = (
            f"; simulated {cell['simulated_one_ms']:.2f} and "
            f"{cell['simulated_two_ms']:.2f}"
        )
        console.print(f"recording of {cell_line(cell)}{simulated}", highlight=False)
    console.print(f"chunk of {cell_line(result['array'])}", highlight=False)
    per_task = ", ".join(f"{k} {1e3 * v:.2f} ms" for k, v in result["costs"].items())
    console.print(f"a task beside its work: {per_task}", highlight=False)
    for series in result["simulated"]:
        last = series["points"][-1]
        console.print(
            f"{series['nbytes'] / 1e6:.1f} MB, {series['storage']}: at "
            f"{last['workers']} "
            f"workers {last['per_second']:.0f} a second, limit {last['limit']}",
            highlight=False,
        )
    outcome = "met" if worst_overhead(result) <= MAX_OVERHEAD else "MISSED"
    console.print(f"more on one worker, at most {MAX_OVERHEAD:+.0%}: {outcome}")


def cell_line(cell: dict[str, Any]) -> str:
    """Return a line with the measured times of one cell."""
    return (
        f"{cell['nbytes'] / 1e6:.1f} MB: here {cell['here_ms']:.2f} ms, one worker "
        f"{cell['one_ms']:.2f} ({cell['one_more']:+.1%}), two {cell['two_ms']:.2f}, "
        f"two processes without a cluster {cell['pair_ms']:.2f}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
