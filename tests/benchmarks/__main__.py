"""`python -m tests.benchmarks`: measure, print, and write the record.

Cold and warm stand apart: the first call of each peer is reported on its own, with the
driver's shader cache switched off so that it means what it says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

# Before a driver is loaded, and before a pool of threads that would spin on.
os.environ.setdefault("MESA_SHADER_CACHE_DISABLE", "true")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")

from tests.benchmarks import (
    cpu_cells,
    cpu_op_cells,
    file_cells,
    gpu_model_cells,
    libraries,
    machine,
    model_cells,
    op_cells,
    peer_cells,
    report,
    script_cells,
    spectral_cells,
    training_cells,
    welch_cells,
)
from tests.benchmarks.cells import CAREFUL, QUICK, run

RESULTS = Path(__file__).parent / "results"


def main(args: Sequence[str] | None = None) -> int:
    """0 when every answer was right (and, with --check, every goal met), else 1."""
    asked = parser().parse_args(args)
    watch = QUICK if asked.quick else replace(CAREFUL, samples=asked.rounds)
    console = report.page(to_stderr=asked.json == "-")
    where = machine.facts()
    works = [*welch_cells.works(), *op_cells.works(), *cpu_cells.works()]
    works += [*cpu_op_cells.works(), *peer_cells.works(), *file_cells.works()]
    works += [*spectral_cells.works(), *script_cells.works(), *model_cells.works()]
    works += [*gpu_model_cells.works(), *training_cells.works()]
    chosen = [make for name, make in works if all(part in name for part in asked.only)]
    if asked.list:
        print("\n".join(name for name, _ in works))
        return 0
    console.print(
        f"{where['processor']}, {where['cores']} cores, load {where['load_1min']}; "
        + "; ".join(f"{a['name']} ({a['backend']})" for a in where["adapters"]),
        highlight=False,
        soft_wrap=True,
    )
    if machine.lavapipe() is None:
        console.print("no lavapipe here: only the CPU is measured", style="yellow")
    missing = {**libraries.missing(), **peer_cells.missing(), **model_cells.missing()}
    for name, why in missing.items():
        console.print(f"no row of {name}: {why}", style="yellow")
    cells = []
    for make in chosen:
        cells.append(run(make(), watch))
        report.show(console, cells[-1])
    settings = {
        "quick": asked.quick,
        "rounds": watch.samples,
        "only": asked.only,
        "missing": missing,
        "shader_cache": os.environ["MESA_SHADER_CACHE_DISABLE"] != "true",
    }
    made = report.document(cells, where, settings)
    _write(made, asked.json, asked.save)
    missed = made["goals"]["missed"]
    console.print(f"goals met: {made['goals']['met']}, missed: {len(missed)}")
    return int(bool(made["wrong"]) or (asked.check and bool(missed)))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    made.add_argument("--quick", action="store_true", help="3 short rounds; no result")
    made.add_argument("--rounds", type=int, default=9, help="at least 7 (default: 9)")
    made.add_argument(
        "--only", action="append", default=[], help="cells whose name holds this text"
    )
    made.add_argument("--list", action="store_true", help="the cells' names, no run")
    made.add_argument("--json", metavar="F", help="write the record; - is stdout")
    made.add_argument(
        "--save", metavar="NAME", help="write the record to tests/benchmarks/results"
    )
    made.add_argument("--check", action="store_true", help="a missed goal is exit 1")
    return made


def _write(record: dict[str, object], path: str | None, name: str | None) -> None:
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
    elif path is not None:
        Path(path).write_text(text, "utf-8")
    if name is not None:
        RESULTS.mkdir(exist_ok=True)
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
        (RESULTS / f"{plain}.json").write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
