"""Time the cases of `rlxweb bench` on every engine, in interleaved rounds."""

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
from rlxweb.cli.bench_cases import (
    CHECKED_ROWS,
    N_PEAKS,
    SEGMENT_LENGTH,
    BenchmarkCase,
    NamedArrays,
)
from rlxweb.cost.decision import rank_candidates
from rlxweb.engines.capabilities import repeat
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import DeviceBuffer
from rlxweb.engines.reference_comparison import compare_to_reference, reference_outputs
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.io.csv_json_npz import finite_or_none
from rlxweb.ir.op import registry
from rlxweb.select.calibration.engine_calibration_lookup import (
    is_measuring_allowed,
    record_for,
)
from rlxweb.select.calibration.stopwatch import Clock, Stopwatch
from rlxweb.select.device_and_adapter import CPU_PLACE, DevicePlace
from rlxweb.select.graph_job import GraphJob
from rlxweb.signal.batch_size_crossover import welch_candidates
from rlxweb.signal.presets import spec_from_preset
from rlxweb.signal.welch_candidates import WelchJob

_MIN_SAMPLE_NS, _MAX_RUNS = 2e7, 2000
"""A sample repeats runs until it lasts so long, at most so often."""
SOFTWARE_NOTE = "software driver: meant for correctness, not speed"
GPU_ROOFLINES: dict[str, tuple[float, float]] = {
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
"""Bandwidth in GB/s and float32 TFLOP/s stated by the manufacturer, by words of the
GPU's name.
"""


def gpu_roofline(adapter: str) -> tuple[float, float]:
    """Return the peak bandwidth and arithmetic rate of a GPU; NaN where they are
    unknown.
    """
    for name, roof in GPU_ROOFLINES.items():
        if all(part in adapter for part in name.split()):
            return roof
    return math.nan, math.nan


def error_summary(error: Exception) -> str:
    """Return one line that describes an error, with its class name."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def engine_facts(place: DevicePlace) -> dict[str, Any]:
    """Return the name, driver and roofline of an engine, or the reason why it does not
    open.

    An engine that was never calibrated is calibrated now, where that is allowed, so
    that its prediction can stand beside the measurement.
    """
    facts: dict[str, Any] = {"place": place.label, "note": "", "why": ""}
    try:
        identity = pool.engine(place.device.label, place.adapter).identity
        software = place != CPU_PLACE and identity.software
        memory, arithmetic = gpu_roofline(identity.adapter)
        facts |= {
            "engine": identity.name,
            "adapter": identity.adapter,
            "api": identity.api,
            "driver": identity.driver,
            "software": software,
            "note": SOFTWARE_NOTE if software else "",
            "memory_gb_s": finite_or_none(memory),
            "f32_tflop_s": finite_or_none(arithmetic),
        }
    except Exception as error:  # each library fails in ways of its own
        return facts | {"why": error_summary(error)}
    if is_measuring_allowed():
        try:
            record_for(place.device, place.adapter)
        except Exception as error:  # the cases may run nevertheless
            facts["note"] = (
                f"{facts['note']}; not calibrated: {error_summary(error)}".lstrip("; ")
            )
    return facts


@dataclass(slots=True)
class _BenchmarkedEngine:
    """Engine that runs a case; `run_repeatedly` does a number of runs and waits for the
    last.
    """

    place: DevicePlace
    row: dict[str, Any]
    run_repeatedly: Callable[[int], object] = field(default=lambda count: None)
    runs_per_sample: int = 1

    def run_sample(self) -> None:
        """Run one sample, unless the engine has failed; note an error in the row."""
        if not self.row["why"]:
            try:
                self.run_repeatedly(self.runs_per_sample)
            except Exception as error:  # each library fails in ways of its own
                self.row["why"] = error_summary(error)


@dataclass(frozen=True, slots=True)
class EngineBenchmark:
    """Benchmark of this machine's engines, with the clock that times them.

    on_progress  told the case and the place that is being prepared
    """

    engines: Sequence[dict[str, Any]]
    places: Sequence[DevicePlace]
    rounds: int
    clock: Clock = time.perf_counter_ns
    on_progress: Callable[[str], object] = str

    def run(self, cases: Sequence[BenchmarkCase]) -> Iterator[dict[str, Any]]:
        """Yield the result entry of each case."""
        for case in cases:
            yield self._measure_case(case)
            gc.collect()

    def _measure_case(self, case: BenchmarkCase) -> dict[str, Any]:
        """Prepare all engines for a case, time them in turns and return the entry."""
        feeds = case.make_feeds()
        rows = []
        with ExitStack() as resources:
            runnable = []
            for facts, place in zip(self.engines, self.places, strict=True):
                engine = _BenchmarkedEngine(place, _empty_row(place, facts["why"]))
                rows.append(engine.row)
                if not engine.row["why"]:
                    self.on_progress(f"{case.name}, {place}")
                    self._prepare(case, feeds, engine, resources)
                if not engine.row["why"]:
                    runnable.append(engine)
            self.on_progress(f"{case.name}: {self.rounds} rounds")
            stopwatch = Stopwatch(
                sample_ns=0,
                samples=self.rounds,
                min_samples=self.rounds,
                clock=self.clock,
            )
            timings = stopwatch.time_interleaved(
                [engine.run_sample for engine in runnable], warm_each=False
            )
        for engine, timing in zip(runnable, timings, strict=True):
            if not engine.row["why"]:
                facts = self.engines[self.places.index(engine.place)]
                engine.row |= _measured_figures(case, facts, engine, timing)
        return {
            "case": case.name,
            "shape": case.shape,
            "data": case.memory,
            "bytes": case.nbytes,
            "operations": case.operations,
            "counted": case.counting_rule,
            "rows": rows,
        }

    def _prepare(
        self,
        case: BenchmarkCase,
        feeds: NamedArrays,
        engine: _BenchmarkedEngine,
        resources: ExitStack,
    ) -> None:
        """Predict the time, check the result and choose the number of runs per
        sample.
        """
        try:
            prepare_runs = (
                _prepare_on_device if case.memory == "device" else _prepare_from_host
            )
            prepare_runs(case, feeds, engine, resources)
            engine.run_repeatedly(1)
            if case.memory == "device":
                for _ in range(2):
                    start_ns = self.clock()
                    engine.run_repeatedly(engine.runs_per_sample)
                    run_ns = max(
                        1.0, (self.clock() - start_ns) / engine.runs_per_sample
                    )
                    engine.runs_per_sample = max(
                        1, min(_MAX_RUNS, int(_MIN_SAMPLE_NS / run_ns))
                    )
        except Exception as error:  # each library fails in ways of its own
            engine.row["why"] = error_summary(error)


def _empty_row(place: DevicePlace, error: str) -> dict[str, Any]:
    """Return the row of an engine before it is measured."""
    names = "ns spread samples runs gb_s tflop_s of_memory of_arithmetic "
    names += "predicted_ns predicted_source measured_over_predicted"
    return {"engine": place.label, **dict.fromkeys(names.split()), "why": error}


def _measured_figures(
    case: BenchmarkCase, facts: dict[str, Any], engine: _BenchmarkedEngine, timing: Any
) -> dict[str, Any]:
    """Return the throughput of an engine and its shares of the roofline."""
    ns = timing.ns / engine.runs_per_sample
    gb_s, tflop_s = case.nbytes / ns, case.operations / ns / 1e3
    predicted = engine.row["predicted_ns"]
    # What lies in the host's memory is bound by the bus, whose roof is not known.
    on_device = case.memory == "device"
    memory = facts["memory_gb_s"] if on_device else None
    arithmetic = facts["f32_tflop_s"] if on_device else None
    return {
        "ns": ns,
        "spread": timing.spread,
        "samples": timing.samples,
        "runs": engine.runs_per_sample,
        "gb_s": gb_s,
        "tflop_s": tflop_s,
        "of_memory": gb_s / memory if memory else None,
        "of_arithmetic": tflop_s / arithmetic if arithmetic else None,
        "measured_over_predicted": ns / predicted if predicted else None,
    }


def _prepare_on_device(
    case: BenchmarkCase,
    feeds: NamedArrays,
    benchmarked: _BenchmarkedEngine,
    resources: ExitStack,
) -> None:
    """Prepare the case as a graph whose inputs stay on the device.

    Predicted are the kernels alone: nothing is brought, fetched or waited for between
    the runs of a sample.
    """
    place = benchmarked.place
    engine = pool.engine(place.device.label, place.adapter)
    graph = case.build_graph(case.n_rows)
    job = GraphJob(graph, on_device=frozenset(feeds))
    (candidate,) = job.candidates(place)
    if candidate.terms is not None and not candidate.blocker:
        terms = candidate.terms
        kernels = terms.dispatch_ns + terms.compute_ns + terms.traffic_ns
        benchmarked.row["predicted_ns"] = kernels or None
        benchmarked.row["predicted_source"] = candidate.source
    program = run_blocking(engine.prepare(job.plan_for(engine, place)))
    resources.callback(lambda: run_blocking(program.close()))
    device_inputs: dict[str, DeviceBuffer] = {}
    for name, array in feeds.items():
        device_inputs[name] = run_blocking(engine.put(array))
        resources.callback(device_inputs[name].free)
    (output,) = run_blocking(engine.run(program, device_inputs, [True]))
    assert isinstance(output, DeviceBuffer)
    try:
        _check_output(case, feeds, output)
    finally:
        output.free()
    benchmarked.run_repeatedly = lambda count: run_blocking(
        repeat(engine, program, device_inputs, count)
    )


def _check_output(
    case: BenchmarkCase, feeds: NamedArrays, output: DeviceBuffer
) -> None:
    """Raise ValueError if leading rows differ from NumPy's result in float64."""
    small_graph = case.build_graph(min(case.n_rows, CHECKED_ROWS))
    leading_inputs = {
        name: feeds[name][tuple(map(slice, node.type.shape))]
        for name, node in small_graph.named("input").items()
    }
    (expected,) = reference_outputs(small_graph, leading_inputs)
    computed = np.array(run_blocking(output.engine.get(output.part(0, expected.shape))))
    node = small_graph.node(small_graph.outputs[0])
    tolerance = registry.get(node.op).tolerance
    agreement = compare_to_reference(
        computed, expected, node.type.dtype, tolerance, case.extra_tolerance
    )
    if agreement.reason:
        raise ValueError(f"wrong result: {agreement.reason}")


def _prepare_from_host(
    case: BenchmarkCase,
    feeds: NamedArrays,
    engine: _BenchmarkedEngine,
    resources: ExitStack,
) -> None:
    """Prepare the public call on an array in host memory; the prediction covers the
    whole call.
    """
    x, place = feeds["x"], engine.place
    spec = spec_from_preset("rlx", x.shape[1], nperseg=SEGMENT_LENGTH, dtype=np.float32)
    job = WelchJob(spec, case.n_rows, x.shape[1], N_PEAKS, "bins", None)
    ranked_candidates = rank_candidates(
        c for c in welch_candidates(job, [place]) if not c.blocker
    )
    if ranked_candidates and ranked_candidates[0].terms is not None:
        engine.row["predicted_ns"] = ranked_candidates[0].terms.total_ns
        engine.row["predicted_source"] = ranked_candidates[0].source
    estimate = partial(
        rlxweb.welch_peaks, nperseg=SEGMENT_LENGTH, k=N_PEAKS, strict=True
    )
    estimate_on_engine = partial(
        estimate, x, device=place.device, adapter=place.adapter
    )
    computed = estimate_on_engine().power[:CHECKED_ROWS]
    expected = estimate(x[:CHECKED_ROWS].astype(np.float64), device="cpu").power
    if not np.allclose(computed, expected, rtol=1e-3):
        raise ValueError(
            "wrong result: the powers of the first rows differ from NumPy's"
        )

    def run_repeatedly(count: int) -> None:
        for _ in range(count):
            estimate_on_engine()

    engine.run_repeatedly = run_repeatedly
