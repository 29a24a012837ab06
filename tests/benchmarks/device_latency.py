"""Latencies of a device, for `./dev bench kernels`: submits, maps, transfers of several
sizes by every method, and a Welch estimate from the host's memory, in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

import rlxweb
from rlxweb.core.errors import DeviceError, LimitExceeded, OutOfMemory
from rlxweb.engines.capabilities import LatencyProbes
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.engines.webgpu.latency_probes import WebGpuLatencyProbes
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.wgpu_port import WgpuPort
from rlxweb.select.calibration.calibration_jobs import empty_run_job
from rlxweb.select.calibration.stopwatch import Stopwatch
from rlxweb.select.device_and_adapter import DevicePlace
from tests.benchmarks.kernel_cases import random_floats

MIB = 1 << 20
TRANSFER_SIZES = (1, 64, 256)
"""MiB of transfers."""
N_DISPATCHES = 101
SEGMENT_LENGTH, N_SEGMENTS, N_PEAKS = 1024, 8, 16
"""Of the Welch estimate from the host."""
Figures = dict[str, Any]


def measure_latency(place: DevicePlace, max_nbytes: float) -> Figures:
    """Measure times in ns: a small run, and where something is submitted also its
    parts.

    max_nbytes  bytes of a transfer
    """
    engine = pool.engine(place.device.label, place.adapter)
    stopwatch = Stopwatch(samples=7, budget_ns=0.5e9)
    job = empty_run_job(place)
    figures: Figures = {"small_run_ns": stopwatch.time(job.run).ns}
    job.close()
    probes = run_blocking(engine.latency_probes())
    if probes is not None:
        try:
            figures |= _measure_submissions(probes, stopwatch)
        finally:
            probes.close()
    sizes = [mib for mib in TRANSFER_SIZES if mib * MIB <= max_nbytes]
    short_stopwatch = replace(stopwatch, samples=3, budget_ns=0.1e9)
    figures["transfers"] = [
        {"path": path, **transfer}
        for path in _transfer_paths(engine)
        for mib in sizes
        for transfer in _measure_transfers(engine, mib, short_stopwatch)
    ]
    return figures


def _transfer_paths(engine: Engine) -> Iterator[str]:
    """Yield the paths by which many bytes can travel, each in force until the next one
    is yielded; "" where there is only one.
    """
    port = engine.port if isinstance(engine, WebGpuEngine) else None
    if not isinstance(port, WgpuPort):
        yield ""
        return
    original = port.in_place
    try:
        for in_place in (True, False) if port.can_map_in_place else (False,):
            port.in_place = in_place
            # The inputs of programs lie as the port says.
            engine_caches(engine).programs.clear()
            yield "in place" if port.in_place else "staged"
    finally:
        port.in_place = original


def _measure_submissions(probes: LatencyProbes, stopwatch: Stopwatch) -> Figures:
    one_ns = stopwatch.time(lambda: run_blocking(probes.dispatch_and_wait(1))).ns
    many_ns = stopwatch.time(
        lambda: run_blocking(probes.dispatch_and_wait(N_DISPATCHES))
    ).ns
    figures: Figures = {
        "round_trip_ns": stopwatch.time(
            lambda: run_blocking(probes.submit_and_wait())
        ).ns,
        "launch_ns": (many_ns - one_ns) / (N_DISPATCHES - 1),
    }
    if isinstance(probes, WebGpuLatencyProbes):
        submit_ns, wait_ns = _split_submission_ns(probes, 1)
        figures["encode_and_submit_ns"], figures["wait_and_map_ns"] = submit_ns, wait_ns
        figures["encode_further_ns"] = (
            _split_submission_ns(probes, N_DISPATCHES)[0] - submit_ns
        ) / (N_DISPATCHES - 1)
    return figures


def _split_submission_ns(
    probes: WebGpuLatencyProbes, count: int
) -> tuple[float, float]:
    """Return medians: until a submission is sent, and from then until it is read."""
    halves = []
    for _ in range(21):
        start_ns = perf_counter_ns()
        probes.submit_dispatches(count)
        sent_ns = perf_counter_ns()
        run_blocking(probes.wait_for_submitted())
        halves.append((sent_ns - start_ns, perf_counter_ns() - sent_ns))
    first, second = np.median(halves, axis=0)
    return float(first), float(second)


def _measure_transfers(
    engine: Engine, mib: int, stopwatch: Stopwatch
) -> Iterator[Figures]:
    """Measure every transfer method, by name; None for one that cannot move so much."""
    nbytes = mib * MIB
    for name, make in transfer_methods(engine).items():
        ns = None
        with suppress(LimitExceeded, OutOfMemory, MemoryError):
            transfer, close = make(nbytes)
            try:
                ns = stopwatch.time(transfer).ns
            finally:
                close()
        yield {
            "way": name,
            "mib": mib,
            "ns": ns,
            "gb_s": None if ns is None else nbytes / ns,
        }


Transfer = tuple[Callable[[], object], Callable[[], object]]
"""Function that moves the bytes once and waits; function that frees them."""


def transfer_methods(engine: Engine) -> dict[str, Callable[[int], Transfer]]:
    """Return the transfer methods of an engine, by name."""
    methods: dict[str, Callable[[int], Transfer]] = {}
    methods |= {
        "put": partial(_put_transfer, engine),
        "get": partial(_get_transfer, engine),
    }
    if isinstance(engine, WebGpuEngine):
        methods["write"] = partial(_probe_transfer, engine, "upload")
        methods["read"] = partial(_probe_transfer, engine, "readback")
    return methods


def _put_transfer(engine: Engine, nbytes: int) -> Transfer:
    array = np.ones(nbytes // 4, np.float32)

    def transfer() -> None:
        buffer = run_blocking(engine.put(array))
        run_blocking(engine.get(buffer.part(0, (1,))))  # it has arrived
        buffer.free()

    return transfer, lambda: None


def _get_transfer(engine: Engine, nbytes: int) -> Transfer:
    buffer = run_blocking(engine.put(np.ones(nbytes // 4, np.float32)))
    return lambda: run_blocking(engine.get(buffer)), buffer.free


def _probe_transfer(engine: WebGpuEngine, direction: str, nbytes: int) -> Transfer:
    probes = run_blocking(engine.latency_probes())
    try:
        probe = (
            probes.upload_probe(nbytes)
            if direction == "upload"
            else probes.readback_probe(nbytes)
        )
    except DeviceError:
        probes.close()
        raise
    return lambda: run_blocking(probe()), probes.close


def measure_host_estimate(place: DevicePlace, nbytes: float) -> Figures:
    """Measure Welch peaks of rows in the host's memory: whole, and its parts, in ns.

    put     the rows brought to the device in one piece
    device_rows  the estimate from rows that lie there
    rest    what the whole takes besides: checks, waits; below 0 where parts overlap
    paths   the whole by every path, with batches one after another and overlapping
    """
    width = SEGMENT_LENGTH // 2 * (N_SEGMENTS + 1)
    rows = max(1, int(nbytes / (4 * width)))
    x = random_floats(np.random.default_rng(0), (rows, width))
    estimate = partial(
        rlxweb.welch_peaks, nperseg=SEGMENT_LENGTH, k=N_PEAKS, strict=True
    )
    upload = partial(rlxweb.put, x, place.device, place.adapter)
    run_estimate = partial(estimate, x, device=place.device, adapter=place.adapter)
    stopwatch = Stopwatch(sample_ns=0, samples=3, budget_ns=5e9)
    figures: Figures = {
        "rows": rows,
        "n": SEGMENT_LENGTH,
        "segments": N_SEGMENTS,
        "bytes": x.nbytes,
    }
    figures["whole"] = stopwatch.time(run_estimate).ns
    try:
        figures["put"] = stopwatch.time(lambda: upload().close()).ns
        with upload() as device_rows:
            figures["there"] = stopwatch.time(lambda: estimate(device_rows)).ns
        figures["rest"] = figures["whole"] - figures["put"] - figures["there"]
    except (LimitExceeded, OutOfMemory) as error:
        figures["why"] = str(error)
    engine = pool.engine(place.device.label, place.adapter)
    figures["paths"] = list(_time_paths(engine, run_estimate, stopwatch))
    return figures


def _time_paths(
    engine: Engine, run_estimate: Callable[[], object], stopwatch: Stopwatch
) -> Iterator[Figures]:
    if not isinstance(engine, WebGpuEngine):
        return
    original = engine.overlaps_runs
    try:
        for path in _transfer_paths(engine):
            for overlaps in (False, True):
                engine.overlaps_runs = overlaps
                ns = stopwatch.time(run_estimate).ns
                yield {"path": path, "overlaps": overlaps, "ns": ns}
    finally:
        engine.overlaps_runs = original
