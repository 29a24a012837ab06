"""`./dev bench kernels`: every variant of the kernels alone, on data on the device.

The same work by hand in PyTorch and CuPy stands beside where they see a GPU. Results
are compared with NumPy in float64: a wrong one has no time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from rlxweb.backends.pool import pool
from rlxweb.cli import options
from rlxweb.cli.bench_engines import reason
from rlxweb.cli.screen import say, screen
from rlxweb.devices.place import CPU, Place, available_places
from rlxweb.io.writers import finite
from tests.benchmarks.kernel_cases import cases
from tests.benchmarks.kernel_contenders import Row
from tests.benchmarks.kernel_machine import (
    engine,
    memory_types,
    missing,
    nvidia,
    peers,
)
from tests.benchmarks.kernel_report import Found, is_wrong, record_of, show, told
from tests.benchmarks.kernel_timing import Bench
from tests.benchmarks.kernel_trips import from_host, trips_of

MIB = 1 << 20


def main(args: Sequence[str] | None = None) -> int:
    """0 when all results were right, 1 when one was wrong, 130 when stopped."""
    asked = parser().parse_args(args)
    places = _places(asked.device)
    on_cpu = all(_is_software(place) for place in places)
    mib = asked.mib or (1.0 if on_cpu else 1024.0)
    rows = asked.rows or (256 if on_cpu else 65_536)
    chosen = [one for one in cases(mib * MIB, rows) if asked.only in one.label]
    if not chosen:
        names = ", ".join(dict.fromkeys(one.name for one in cases(MIB, 8)))
        parser().error(f"no case has {asked.only!r} in its name; there are {names}")
    err, found, code = screen(stderr=True), Found(monotonic()), 0
    try:
        _around(places, mib * MIB, found)
        left_s = asked.budget_s - (monotonic() - found.began)
        bench = Bench(places, left_s, asked.rounds, with_peers=not on_cpu)
        for measured in bench.run(chosen):
            found.rows += map(row_of, measured)
            say(err, told(record_of(found)["rows"][-len(measured) :]))
            if asked.json not in (None, "-"):
                _write(asked.json, found)
        found.left_out, found.is_partial = bench.left_out, bench.spoiled
    except KeyboardInterrupt:
        code = 130
    if asked.json is not None:
        _write(asked.json, found)
    record = record_of(found)
    show(err if asked.json == "-" else screen(), record)
    return code or int(is_wrong(record))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="./dev bench kernels", description=__doc__)
    made.add_argument("--device", action="append", default=[], help="all GPUs")
    made.add_argument("--only", default="", help="cases whose name holds this text")
    made.add_argument("--mib", type=float, help="of a case at most (1024)")
    made.add_argument("--rows", type=int, help="of a case at most (65536)")
    made.add_argument("--rounds", type=int, default=7, help="samples (7)")
    made.add_argument("--budget-s", type=float, default=420.0, help="of all (420)")
    made.add_argument("--json", metavar="F", help="after each case; - is stdout")
    return made


def row_of(row: Row) -> dict[str, Any]:
    """A row as JSON; what is not known of it is null."""
    return {
        "case": row.case.name,
        "shape": row.case.shape,
        "engine": row.engine,
        "variant": row.variant,
        "chosen": row.chosen,
        "by_hand": row.is_peer,
        "judged": row.judged,
        "max_error": finite(row.max_error),
        "ns": finite(row.ns),
        "spread": finite(row.spread),
        "samples": row.samples,
        "first_ns": finite(row.first_ns),
        "bytes": row.case.nbytes,
        "flops": row.case.flops,
        "why": row.why,
    }


def _around(places: Sequence[Place], nbytes: float, found: Found) -> None:
    """Engines, libraries and memory of the machine, and the trips to its devices."""
    found.facts = {
        "engines": [engine(place) for place in places],
        "missing": missing(places),
        "peers": peers(),
        "nvidia": nvidia(),
        "memory_types": memory_types(),
    }
    for place in places:
        found.trips[place.label] = _or_why(trips_of, place, nbytes)
        found.from_host[place.label] = _or_why(from_host, place, nbytes)


def _or_why(
    measure: Callable[[Place, float], dict[str, Any]], place: Place, nbytes: float
) -> dict[str, Any]:
    try:
        return measure(place, nbytes)
    except Exception as error:  # each library fails in ways of its own
        return {"why": reason(error)}


def _is_software(place: Place) -> bool:
    return place == CPU or pool.backend(place.device.label, place.adapter).software


def _places(named: Sequence[str]) -> list[Place]:
    if named:
        return options.places_of(named)
    others = [place for place in available_places() if place != CPU]
    return [place for place in others if not _is_software(place)] or others or [CPU]


def _write(path: str, found: Found) -> None:
    text = json.dumps(record_of(found), indent=1, ensure_ascii=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
