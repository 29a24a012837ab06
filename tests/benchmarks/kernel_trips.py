"""Trips to a device, for `./dev bench kernels`: submits, maps, transfers of several
sizes by every way there is, and a Welch estimate from the host's memory, in parts.
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
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend, Trips
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.backends.webgpu_trips import WebGpuTrips
from rlxweb.calibration.kernels import empty_run
from rlxweb.calibration.stopwatch import Stopwatch
from rlxweb.devices.place import Place
from rlxweb.errors import DeviceError, LimitExceeded, OutOfMemory
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from tests.benchmarks.kernel_cases import drawn

MIB = 1 << 20
SIZES = (1, 64, 256)
"""MiB of transfers."""
MANY = 101
N, SEGMENTS, K = 1024, 8, 16
"""Of the Welch estimate from the host."""
Found = dict[str, Any]


def trips_of(place: Place, most: float) -> Found:
    """Times in ns: a small run, and where something is submitted also its parts.

    most   bytes of a transfer
    """
    backend = pool.backend(place.device.label, place.adapter)
    watch = Stopwatch(samples=7, budget_ns=0.5e9)
    job = empty_run(place)
    found: Found = {"small_run_ns": watch.time(job.run).ns}
    job.close()
    trips = drive(backend.trips())
    if trips is not None:
        try:
            found |= _submits(trips, watch)
        finally:
            trips.close()
    sizes = [mib for mib in SIZES if mib * MIB <= most]
    briefly = replace(watch, samples=3, budget_ns=0.1e9)
    found["transfers"] = [
        {"path": path, **one}
        for path in _paths(backend)
        for mib in sizes
        for one in _moved(backend, mib, briefly)
    ]
    return found


def _paths(backend: Backend) -> Iterator[str]:
    """The paths by which many bytes can travel, each in force while it is the last one
    that was told; "" where there is one.
    """
    port = backend.port if isinstance(backend, WebGpuBackend) else None
    if not isinstance(port, NativePort):
        yield ""
        return
    own = port.in_place
    try:
        for in_place in (True, False) if port.maps else (False,):
            port.in_place = in_place
            backend.kept.clear()  # the inputs of programs lie as the port says
            yield "in place" if port.in_place else "staged"
    finally:
        port.in_place = own


def _submits(trips: Trips, watch: Stopwatch) -> Found:
    one = watch.time(lambda: drive(trips.dispatches(1))).ns
    many = watch.time(lambda: drive(trips.dispatches(MANY))).ns
    found: Found = {
        "round_trip_ns": watch.time(lambda: drive(trips.wait())).ns,
        "launch_ns": (many - one) / (MANY - 1),
    }
    if isinstance(trips, WebGpuTrips):
        first, mapped = _halves(trips, 1)
        found["encode_and_submit_ns"], found["wait_and_map_ns"] = first, mapped
        found["encode_further_ns"] = (_halves(trips, MANY)[0] - first) / (MANY - 1)
    return found


def _halves(trips: WebGpuTrips, count: int) -> tuple[float, float]:
    """Medians: until a submission is on its way, and from then until it is read."""
    halves = []
    for _ in range(21):
        begun = perf_counter_ns()
        trips.submit(count)
        sent = perf_counter_ns()
        drive(trips.answered())
        halves.append((sent - begun, perf_counter_ns() - sent))
    first, second = np.median(halves, axis=0)
    return float(first), float(second)


def _moved(backend: Backend, mib: int, watch: Stopwatch) -> Iterator[Found]:
    """Every way up and back, by name; None for one that cannot move so much."""
    nbytes = mib * MIB
    for name, make in ways_of(backend).items():
        ns = None
        with suppress(LimitExceeded, OutOfMemory, MemoryError):
            go, close = make(nbytes)
            try:
                ns = watch.time(go).ns
            finally:
                close()
        yield {
            "way": name,
            "mib": mib,
            "ns": ns,
            "gb_s": None if ns is None else nbytes / ns,
        }


Move = tuple[Callable[[], object], Callable[[], object]]
"""What moves the bytes once and waits; what frees them."""


def ways_of(backend: Backend) -> dict[str, Callable[[int], Move]]:
    """The ways of an engine to move bytes, by name."""
    found: dict[str, Callable[[int], Move]] = {}
    found |= {"put": partial(_put, backend), "get": partial(_get, backend)}
    if isinstance(backend, WebGpuBackend):
        found["write"] = partial(_trip, backend, "upload")
        found["read"] = partial(_trip, backend, "readback")
    return found


def _put(backend: Backend, nbytes: int) -> Move:
    array = np.ones(nbytes // 4, np.float32)

    def go() -> None:
        there = drive(backend.put(array))
        drive(backend.get(drive(backend.part(there, 0, (1,)))))  # it has arrived
        drive(backend.free(there))

    return go, lambda: None


def _get(backend: Backend, nbytes: int) -> Move:
    there = drive(backend.put(np.ones(nbytes // 4, np.float32)))
    return lambda: drive(backend.get(there)), lambda: drive(backend.free(there))


def _trip(backend: WebGpuBackend, way: str, nbytes: int) -> Move:
    trips = drive(backend.trips())
    try:
        trip = trips.upload(nbytes) if way == "upload" else trips.readback(nbytes)
    except DeviceError:
        trips.close()
        raise
    return lambda: drive(trip()), trips.close


def from_host(place: Place, nbytes: float) -> Found:
    """Welch peaks of rows in the host's memory: whole, and its parts, in ns.

    put     the rows brought to the device in one piece
    there   the estimate from rows that lie there
    rest    what the whole takes besides: checks, waits; below 0 where parts overlap
    paths   the whole by every path, with batches one after another and overlapping
    """
    width = N // 2 * (SEGMENTS + 1)
    rows = max(1, int(nbytes / (4 * width)))
    x = drawn(np.random.default_rng(0), (rows, width))
    estimate = partial(rlxweb.welch_peaks, nperseg=N, k=K, strict=True)
    bring = partial(rlxweb.put, x, place.device, place.adapter)
    whole = partial(estimate, x, device=place.device, adapter=place.adapter)
    watch = Stopwatch(sample_ns=0, samples=3, budget_ns=5e9)
    found: Found = {"rows": rows, "n": N, "segments": SEGMENTS, "bytes": x.nbytes}
    found["whole"] = watch.time(whole).ns
    try:
        found["put"] = watch.time(lambda: bring().close()).ns
        with bring() as there:
            found["there"] = watch.time(lambda: estimate(there)).ns
        found["rest"] = found["whole"] - found["put"] - found["there"]
    except (LimitExceeded, OutOfMemory) as error:
        found["why"] = str(error)
    backend = pool.backend(place.device.label, place.adapter)
    found["paths"] = list(_by_paths(backend, whole, watch))
    return found


def _by_paths(
    backend: Backend, whole: Callable[[], object], watch: Stopwatch
) -> Iterator[Found]:
    if not isinstance(backend, WebGpuBackend):
        return
    own = backend.overlaps
    try:
        for path in _paths(backend):
            for overlaps in (False, True):
                backend.overlaps = overlaps
                ns = watch.time(whole).ns
                yield {"path": path, "overlaps": overlaps, "ns": ns}
    finally:
        backend.overlaps = own
