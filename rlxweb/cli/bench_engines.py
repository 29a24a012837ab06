"""Times the cases of `rlxweb bench` on every engine, in turns."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import rlxweb
from rlxweb.backends.agreement import compare, oracle
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Resident
from rlxweb.calibration.known import may_measure, record_for
from rlxweb.calibration.stopwatch import Clock, Stopwatch
from rlxweb.choose.graphs import GraphJob
from rlxweb.cli.bench_cases import CHECKED_ROWS, PEAKS, Arrays, Case, N
from rlxweb.decision.candidate import ranked
from rlxweb.devices.place import CPU, Place
from rlxweb.gpu.drive import drive
from rlxweb.io.writers import finite
from rlxweb.ir.op import registry
from rlxweb.signal.crossover import welch_candidates
from rlxweb.signal.offers import WelchJob
from rlxweb.signal.presets import from_preset

_SAMPLE_NS, _MOST_RUNS = 2e7, 2000
"""A sample repeats runs until it lasts so long, at most so often."""
SOFTWARE = "software driver: for correctness, not speed"
ROOFS: dict[str, tuple[float, float]] = {
    "H200": (4800, 66.9),
    "H100 PCIe": (2039, 51.2),
    "H100": (3350, 66.9),
    "A100": (1935, 19.5),
    "L40": (864, 90.5),
    "L4": (300, 30.3),
    "T4": (320, 8.1),
    "4090": (1008, 82.6),
    "3090": (936, 35.6),
}
"""GB/s and float32 TFLOP/s by words of a GPU's name, as its maker states them."""


def roof_of(adapter: str) -> tuple[float, float]:
    """Bandwidth and arithmetic of a GPU; NaN where they are not known."""
    for name, roof in ROOFS.items():
        if all(part in adapter for part in name.split()):
            return roof
    return math.nan, math.nan


def reason(error: Exception) -> str:
    """One line of an error, with its kind."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def engine_facts(place: Place) -> dict[str, Any]:
    """Name, driver and roof of an engine, or the reason why it does not open.

    An engine that was never calibrated is calibrated now, where that is allowed, so
    that its prediction can stand beside the measurement.
    """
    facts: dict[str, Any] = {"place": place.label, "note": "", "why": ""}
    try:
        backend = pool.backend(place.device.label, place.adapter)
        software = place != CPU and backend.software
        memory, arithmetic = roof_of(backend.adapter)
        facts |= {
            "engine": backend.name,
            "adapter": backend.adapter,
            "api": backend.api,
            "driver": backend.driver,
            "software": software,
            "note": SOFTWARE if software else "",
            "memory_gb_s": finite(memory),
            "f32_tflop_s": finite(arithmetic),
        }
    except Exception as error:  # each library fails in ways of its own
        return facts | {"why": reason(error)}
    if may_measure():
        try:
            record_for(place.device, place.adapter)
        except Exception as error:  # the cases may run nevertheless
            facts["note"] = f"{facts['note']}; not calibrated: {reason(error)}".lstrip(
                "; "
            )
    return facts


@dataclass(slots=True)
class _Contender:
    """An engine at work on a case: `go` does that many runs and waits for the end."""

    place: Place
    row: dict[str, Any]
    go: Callable[[int], object] = field(default=lambda count: None)
    runs: int = 1

    def run(self) -> None:
        if not self.row["why"]:
            try:
                self.go(self.runs)
            except Exception as error:  # each library fails in ways of its own
                self.row["why"] = reason(error)


@dataclass(frozen=True, slots=True)
class Bench:
    """The engines of this machine and the watch that times them.

    begun   told the case and the place that is being prepared
    """

    engines: Sequence[dict[str, Any]]
    places: Sequence[Place]
    rounds: int
    clock: Clock = time.perf_counter_ns
    begun: Callable[[str], object] = str

    def run(self, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
        """The entry of each case, as the record has it."""
        for case in cases:
            yield self._measured(case)
            gc.collect()

    def _measured(self, case: Case) -> dict[str, Any]:
        feeds = case.feeds()
        rows = []
        with ExitStack() as opened:
            ready = []
            for facts, place in zip(self.engines, self.places, strict=True):
                one = _Contender(place, _empty_row(place, facts["why"]))
                rows.append(one.row)
                if not one.row["why"]:
                    self.begun(f"{case.name}, {place}")
                    self._prepare(case, feeds, one, opened)
                if not one.row["why"]:
                    ready.append(one)
            self.begun(f"{case.name}: {self.rounds} rounds")
            watch = Stopwatch(
                sample_ns=0, samples=self.rounds, least=self.rounds, clock=self.clock
            )
            timings = watch.interleaved([one.run for one in ready], settle=False)
        for one, timing in zip(ready, timings, strict=True):
            if not one.row["why"]:
                facts = self.engines[self.places.index(one.place)]
                one.row |= _figures(case, facts, one, timing)
        return {
            "case": case.name,
            "shape": case.shape,
            "data": case.data,
            "bytes": case.nbytes,
            "operations": case.operations,
            "counted": case.counted,
            "rows": rows,
        }

    def _prepare(
        self, case: Case, feeds: Arrays, one: _Contender, opened: ExitStack
    ) -> None:
        """Prediction, check of the result, and the runs of a sample."""
        try:
            prepare = _on_device if case.data == "device" else _from_host
            prepare(case, feeds, one, opened)
            one.go(1)
            if case.data == "device":
                for _ in range(2):
                    begun = self.clock()
                    one.go(one.runs)
                    took = max(1.0, (self.clock() - begun) / one.runs)
                    one.runs = max(1, min(_MOST_RUNS, int(_SAMPLE_NS / took)))
        except Exception as error:  # each library fails in ways of its own
            one.row["why"] = reason(error)


def _empty_row(place: Place, why: str) -> dict[str, Any]:
    names = "ns spread samples runs gb_s tflop_s of_memory of_arithmetic "
    names += "predicted_ns predicted_source measured_over_predicted"
    return {"engine": place.label, **dict.fromkeys(names.split()), "why": why}


def _figures(
    case: Case, facts: dict[str, Any], one: _Contender, timing: Any
) -> dict[str, Any]:
    ns = timing.ns / one.runs
    gb_s, tflop_s = case.nbytes / ns, case.operations / ns / 1e3
    predicted = one.row["predicted_ns"]
    # What lies in the host's memory is bound by the bus, whose roof is not known.
    on_device = case.data == "device"
    memory = facts["memory_gb_s"] if on_device else None
    arithmetic = facts["f32_tflop_s"] if on_device else None
    return {
        "ns": ns,
        "spread": timing.spread,
        "samples": timing.samples,
        "runs": one.runs,
        "gb_s": gb_s,
        "tflop_s": tflop_s,
        "of_memory": gb_s / memory if memory else None,
        "of_arithmetic": tflop_s / arithmetic if arithmetic else None,
        "measured_over_predicted": ns / predicted if predicted else None,
    }


def _on_device(case: Case, feeds: Arrays, one: _Contender, opened: ExitStack) -> None:
    """The case as a graph whose inputs lie on the device.

    Predicted are the kernels alone: nothing is brought, fetched or waited for between
    the runs of a sample.
    """
    place = one.place
    backend = pool.backend(place.device.label, place.adapter)
    graph = case.build(case.rows)
    job = GraphJob(graph, there=frozenset(feeds))
    (offer,) = job.offers(place)
    if offer.terms is not None and not offer.blocker:
        terms = offer.terms
        kernels = terms.dispatch_ns + terms.compute_ns + terms.traffic_ns
        one.row["predicted_ns"] = kernels or None
        one.row["predicted_source"] = offer.source
    program = drive(backend.prepare(job.plan_on(backend, place)))
    opened.callback(lambda: drive(backend.release(program)))
    there: dict[str, Resident] = {}
    for name, array in feeds.items():
        there[name] = drive(backend.put(array))
        opened.callback(_free, backend, there[name])
    (out,) = drive(backend.run_resident(program, there, [True]))
    assert isinstance(out, Resident)
    try:
        _check(case, feeds, backend, out)
    finally:
        drive(backend.free(out))
    one.go = lambda count: drive(backend.repeat(program, there, count))


def _free(backend: Any, resident: Resident) -> None:
    drive(backend.free(resident))


def _check(case: Case, feeds: Arrays, backend: Any, out: Any) -> None:
    """Errors  ValueError for leading rows that differ from NumPy's in float64."""
    few = case.build(min(case.rows, CHECKED_ROWS))
    ends = {
        name: feeds[name][tuple(map(slice, node.type.shape))]
        for name, node in few.named("input").items()
    }
    (want,) = oracle(few, ends)
    got = np.array(drive(backend.get(drive(backend.part(out, 0, want.shape)))))
    node = few.node(few.outputs[0])
    allowed = registry.get(node.op).tolerance
    found = compare(got, want, node.type.dtype, allowed, case.slack)
    if found.why:
        raise ValueError(f"wrong result: {found.why}")


def _from_host(case: Case, feeds: Arrays, one: _Contender, opened: ExitStack) -> None:
    """The call a user makes, on an array in the host's memory; predicted in whole."""
    x, place = feeds["x"], one.place
    spec = from_preset("rlx", x.shape[1], nperseg=N, dtype=np.float32)
    job = WelchJob(spec, case.rows, x.shape[1], PEAKS, "bins", None)
    best = ranked(c for c in welch_candidates(job, [place]) if not c.blocker)
    if best and best[0].terms is not None:
        one.row["predicted_ns"] = best[0].terms.total_ns
        one.row["predicted_source"] = best[0].source
    call = partial(rlxweb.welch_peaks, nperseg=N, k=PEAKS, strict=True)
    ask = partial(call, x, device=place.device, adapter=place.adapter)
    got = ask().power[:CHECKED_ROWS]
    want = call(x[:CHECKED_ROWS].astype(np.float64), device="cpu").power
    if not np.allclose(got, want, rtol=1e-3):
        raise ValueError("wrong result: powers of the first rows differ from NumPy's")

    def go(count: int) -> None:
        for _ in range(count):
            ask()

    one.go = go
