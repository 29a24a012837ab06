"""`./dev bench kernels`: every variant of the kernels alone, on data on the device: all
GPUs, or `--device cpu`.

The same work by hand in PyTorch and CuPy stands beside where they see a GPU. Results
are compared with NumPy in float64: a wrong one has no time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

from rlxweb.cli import options
from rlxweb.cli.bench_engines import error_summary
from rlxweb.cli.console import make_console, print_lines
from rlxweb.engines.cpu import JIT_CACHES
from rlxweb.engines.pool import pool
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace, available_places
from tests.benchmarks.device_latency import measure_host_estimate, measure_latency
from tests.benchmarks.kernel_cases import make_cases
from tests.benchmarks.kernel_contenders import ContenderRow
from tests.benchmarks.kernel_machine_facts import (
    engine_facts,
    memory_types,
    missing_devices,
    nvidia_gpus,
    peer_versions,
)
from tests.benchmarks.kernel_report import (
    KernelResults,
    case_summary,
    has_wrong_result,
    print_report,
    results_document,
)
from tests.benchmarks.kernel_timing import KernelBenchmark

MIB = 1 << 20


def main(args: Sequence[str] | None = None) -> int:
    """Return 0 when all results were right, 1 when one was wrong, 130 when
    interrupted.
    """
    arguments = build_parser().parse_args(args)
    places = _select_places(arguments.device)
    on_cpu = all(_is_software(place) for place in places)
    mib = arguments.mib or (1.0 if on_cpu else 1024.0)
    rows = arguments.rows or (256 if on_cpu else 65_536)
    selected = [
        case for case in make_cases(mib * MIB, rows) if arguments.only in case.label
    ]
    if not selected:
        names = ", ".join(dict.fromkeys(case.name for case in make_cases(MIB, 8)))
        build_parser().error(
            f"no case has {arguments.only!r} in its name; there are {names}"
        )
    err_console = make_console(stderr=True)
    results = KernelResults(monotonic())
    code = 0
    waiting = ExitStack()
    if CPU_PLACE in places:  # its compiled code is there from the first run on
        for jit_cache in JIT_CACHES:
            waiting.enter_context(jit_cache.wait_for_kernels())
    try:
        _collect_facts(places, mib * MIB, results)
        left_s = arguments.budget_s - (monotonic() - results.start_s)
        bench = KernelBenchmark(places, left_s, arguments.rounds, with_peers=not on_cpu)
        for case_rows in bench.run(selected):
            results.rows += map(row_record, case_rows)
            print_lines(
                err_console,
                case_summary(results_document(results)["rows"][-len(case_rows) :]),
            )
            if arguments.json not in (None, "-"):
                _write_document(arguments.json, results)
        results.skipped_cases, results.is_partial = (
            bench.skipped_cases,
            bench.is_spoiled,
        )
    except KeyboardInterrupt:
        code = 130
    finally:
        waiting.close()
    if arguments.json is not None:
        _write_document(arguments.json, results)
    document = results_document(results)
    print_report(err_console if arguments.json == "-" else make_console(), document)
    return code or int(has_wrong_result(document))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(prog="./dev bench kernels", description=__doc__)
    parser.add_argument("--device", action="append", default=[], help="all GPUs")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--mib", type=float, help="of a case at most (1024; on CPUs 1)")
    parser.add_argument(
        "--rows", type=int, help="of a case at most (65536; on CPUs 256)"
    )
    parser.add_argument("--rounds", type=int, default=7, help="samples (7)")
    parser.add_argument("--budget-s", type=float, default=420.0, help="of all (420)")
    parser.add_argument("--json", metavar="F", help="after each case; - is stdout")
    return parser


def row_record(row: ContenderRow) -> dict[str, Any]:
    """Return a row as JSON; unknown values are null."""
    return {
        "case": row.case.name,
        "shape": row.case.shape,
        "engine": row.engine,
        "variant": row.variant,
        "chosen": row.chosen,
        "by_hand": row.is_peer,
        "judged": row.verdict,
        "max_error": finite_or_none(row.max_error),
        "ns": finite_or_none(row.ns),
        "spread": finite_or_none(row.spread),
        "samples": row.samples,
        "first_ns": finite_or_none(row.first_ns),
        "bytes": row.case.nbytes,
        "flops": row.case.flops,
        "why": row.failure,
    }


def _collect_facts(
    places: Sequence[DevicePlace], nbytes: float, results: KernelResults
) -> None:
    """Collect engines, libraries and memory of the machine, and the latencies of its
    devices.
    """
    results.facts = {
        "engines": [engine_facts(place) for place in places],
        "missing": missing_devices(places),
        "peers": peer_versions(),
        "nvidia": nvidia_gpus(),
        "memory_types": memory_types(),
    }
    for place in places:
        results.latencies[place.label] = _measure_or_reason(
            measure_latency, place, nbytes
        )
        results.host_estimates[place.label] = _measure_or_reason(
            measure_host_estimate, place, nbytes
        )


def _measure_or_reason(
    measure: Callable[[DevicePlace, float], dict[str, Any]],
    place: DevicePlace,
    nbytes: float,
) -> dict[str, Any]:
    try:
        return measure(place, nbytes)
    except Exception as error:  # each library fails in ways of its own
        return {"why": error_summary(error)}


def _is_software(place: DevicePlace) -> bool:
    engine = pool.engine(place.device.label, place.adapter)
    return place == CPU_PLACE or engine.identity.software


def _select_places(names: Sequence[str]) -> list[DevicePlace]:
    if names:
        return options.parse_places(names)
    others = [place for place in available_places() if place != CPU_PLACE]
    return (
        [place for place in others if not _is_software(place)] or others or [CPU_PLACE]
    )


def _write_document(path: str, results: KernelResults) -> None:
    text = json.dumps(results_document(results), indent=1, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
