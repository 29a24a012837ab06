"""`python -m tests.benchmarks`: measure, print and write the results.

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
    bands_command_process_cells,
    cpu_op_cells,
    cpu_welch_cells,
    gpu_model_cells,
    handwritten_op_cells,
    machine_facts,
    model_cells,
    peer_gpu_runtime_cells,
    peer_libraries,
    recording_file_cells,
    report,
    spectral_cells,
    training_cells,
    welch_cells,
)
from tests.benchmarks.benchmark_cells import (
    CAREFUL_STOPWATCH,
    QUICK_STOPWATCH,
    run_cell,
)

RESULTS_DIR = Path(__file__).parent / "results"


def main(args: Sequence[str] | None = None) -> int:
    """Return 0 when every answer was right (and, with --check, every goal met), else
    1.
    """
    arguments = build_parser().parse_args(args)
    stopwatch = (
        QUICK_STOPWATCH
        if arguments.quick
        else replace(CAREFUL_STOPWATCH, samples=arguments.rounds)
    )
    console = report.create_console(to_stderr=arguments.json == "-")
    facts = machine_facts.collect_facts()
    factories = [
        *welch_cells.works(),
        *handwritten_op_cells.cell_factories(),
        *cpu_welch_cells.cell_factories(),
    ]
    factories += [
        *cpu_op_cells.cell_factories(),
        *peer_gpu_runtime_cells.cell_factories(),
        *recording_file_cells.cell_factories(),
    ]
    factories += [
        *spectral_cells.works(),
        *bands_command_process_cells.works(),
        *model_cells.cell_factories(),
    ]
    factories += [*gpu_model_cells.cell_factories(), *training_cells.works()]
    selected = [
        make for name, make in factories if all(part in name for part in arguments.only)
    ]
    if arguments.list:
        print("\n".join(name for name, _ in factories))
        return 0
    console.print(
        f"{facts['processor']}, {facts['cores']} cores, load {facts['load_1min']}; "
        + "; ".join(f"{a['name']} ({a['backend']})" for a in facts["adapters"]),
        highlight=False,
        soft_wrap=True,
    )
    if machine_facts.find_lavapipe() is None:
        console.print("no lavapipe here: only the CPU is measured", style="yellow")
    missing = {
        **peer_libraries.missing_libraries(),
        **peer_gpu_runtime_cells.missing_runtimes(),
        **model_cells.missing_models(),
    }
    for name, why in missing.items():
        console.print(f"no row of {name}: {why}", style="yellow")
    cells = []
    for make in selected:
        cells.append(run_cell(make(), stopwatch))
        report.print_cell(console, cells[-1])
    settings = {
        "quick": arguments.quick,
        "rounds": stopwatch.samples,
        "only": arguments.only,
        "missing": missing,
        "shader_cache": os.environ["MESA_SHADER_CACHE_DISABLE"] != "true",
    }
    document = report.document(cells, facts, settings)
    _write_document(document, arguments.json, arguments.save)
    missed_goals = document["goals"]["missed"]
    console.print(f"goals met: {document['goals']['met']}, missed: {len(missed_goals)}")
    return int(bool(document["wrong"]) or (arguments.check and bool(missed_goals)))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="3 short rounds; no result"
    )
    parser.add_argument("--rounds", type=int, default=9, help="at least 7 (default: 9)")
    parser.add_argument(
        "--only", action="append", default=[], help="cells whose name holds this text"
    )
    parser.add_argument("--list", action="store_true", help="the cells' names, no run")
    parser.add_argument("--json", metavar="F", help="write the record; - is stdout")
    parser.add_argument(
        "--save", metavar="NAME", help="write the record to tests/benchmarks/results"
    )
    parser.add_argument("--check", action="store_true", help="a missed goal is exit 1")
    return parser


def _write_document(
    document: dict[str, object], path: str | None, name: str | None
) -> None:
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
    elif path is not None:
        Path(path).write_text(text, "utf-8")
    if name is not None:
        RESULTS_DIR.mkdir(exist_ok=True)
        file_stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
        (RESULTS_DIR / f"{file_stem}.json").write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
