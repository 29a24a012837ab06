"""Operations over rows: NumPy on the host, one graph on any other engine.

Owns how such a call becomes a job for the chooser, and in which batches its rows go to
a device. Knows none of the functions that are made of it: they bring a `RowOperation`.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, perf_counter_ns
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.device import Device
from rlxweb.core.errors import EnvironmentWarning, Unsupported
from rlxweb.core.lru_cache import LruCache
from rlxweb.core.message_text import Advice
from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.core.warning_stacklevel import caller_stacklevel
from rlxweb.cost.decision import Candidate
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Engine
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape_arithmetic import Shape
from rlxweb.results.ran import Ran, Stage
from rlxweb.runtime.compiled_graph import CompiledGraph
from rlxweb.runtime.session import Session
from rlxweb.select.chooser import DevicePick, PlaceRequest, choose_place_async
from rlxweb.select.device_and_adapter import DevicePlace
from rlxweb.select.device_loss_retry import DEVICE_LOST, retried_decision, retry_run
from rlxweb.select.graph_job import GraphJob
from rlxweb.select.policy import device_from_env, forced_device_from_env
from rlxweb.signal.precision import ResolvedPrecision

Array = NDArray[Any]
Shapes = tuple[Shape, ...]

MAX_BATCH_BYTES: Final = 64 << 20
"""Bytes that go to a device, or come back from it, in one batch."""


class RowOperation(Protocol):
    """Protocol of an operation over rows, the leading axis of all its inputs and of its
    output.

    input_names   their names in the graph
    host_only_reason  why no device computes it; "" when one does
    nbytes        what it weighs beside its graph, to be kept
    """

    @property
    def input_names(self) -> tuple[str, ...]: ...

    @property
    def host_only_reason(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def cache_key(self) -> Hashable:
        """Key under which its graph is cached."""

    def compute_on_host(self, *rows: Array) -> Array:
        """Compute the output with NumPy, for samples of every type."""

    def build_graph(self, shapes: Shapes) -> Graph:
        """Return the float32 graph of the same operation for inputs of these shapes."""

    def convert_graph_output(self, out: Array) -> Array:
        """Return the graph's output in the form that the host computation gives."""

    def row_width(self, shapes: Shapes) -> int:
        """Return the number of float32 values of a row that go to the device, or that
        come back, whichever is larger.
        """


async def run_row_operation(
    operation: RowOperation,
    rows: Sequence[Array],
    sample_type: ResolvedPrecision,
    request: PlaceRequest,
    context: str,
    strict: bool,
) -> tuple[Array, DevicePick[GraphJob] | None]:
    """Run an operation over prepared rows; return its output and the device pick, or
    None where only NumPy can compute it.

    Errors   Unsupported, DTypeError for a device that was asked for and cannot do it;
    those of the device.
    """
    if sample_type.host_only_reason or operation.host_only_reason:
        _refuse_devices(operation, sample_type, request, context)
        return operation.compute_on_host(*rows), None
    if not all(array.size for array in rows):
        return operation.compute_on_host(*rows), None
    row_job = _get_job(operation, tuple(array.shape for array in rows))
    pick = await choose_place_async(row_job.job, request)
    started_ns = perf_counter_ns()
    try:
        output = await _run_candidate(pick.candidate, operation, rows)
        took_ns = perf_counter_ns() - started_ns
        row_job.record_run(pick, took_ns)
        return output, replace(pick, took_ns=took_ns)
    except DEVICE_LOST as error:
        if strict:
            raise

        async def rerun(candidate: Candidate) -> Array:
            return await _run_candidate(candidate, operation, rows)

        candidates = pick.decision.candidates
        output, candidate, attempts = await retry_run(
            error, pick.candidate, candidates, rerun
        )
        decision = retried_decision(pick.decision, attempts)
        took_ns = perf_counter_ns() - started_ns
        return output, replace(
            pick, candidate=candidate, decision=decision, took_ns=took_ns
        )


async def pick_candidate(
    operation: RowOperation, shapes: Shapes, request: PlaceRequest
) -> Candidate:
    """Return the candidate that would run the operation for rows of these shapes.
    Raises the errors of the chooser.
    """
    return (
        await choose_place_async(_get_job(operation, shapes).job, request)
    ).candidate


def run_info(pick: DevicePick[GraphJob] | None, started: float) -> Ran:
    """Return engine, decision and wall time of a call that started at `started`
    (time.perf_counter).
    """
    wall_s = perf_counter() - started
    if pick is None:
        return Ran(f"NumPy {np.__version__}", None, wall_s, (Stage("compute", wall_s),))
    compute_s = pick.took_ns * 1e-9
    stages = Stage("choose", max(0.0, wall_s - compute_s)), Stage("compute", compute_s)
    return Ran(pick.engine, pick.decision, wall_s, stages)


async def _run_candidate(
    candidate: Candidate, operation: RowOperation, rows: Sequence[Array]
) -> Array:
    """Run the operation on the engine of a candidate."""
    if candidate.device is Device.CPU:
        return operation.compute_on_host(*rows)
    return await _run_on_device(operation, rows, candidate)


@dataclass(slots=True)
class _RowJob:
    """Job of an operation, with the places where it has run before.

    The host's function is not the job's graph, so it has corrections of its own.
    """

    job: GraphJob
    warm_places: set[DevicePlace] = field(default_factory=set)

    def record_run(self, pick: DevicePick[GraphJob], took_ns: float) -> None:
        """Correct the predicted times by this run, unless it is the first at its
        place.
        """
        place = DevicePlace(pick.device, pick.candidate.adapter)
        if place in self.warm_places:
            pick.observe(took_ns)
        self.warm_places.add(place)


_job_cache: LruCache[Hashable, _RowJob] = LruCache(64, 64 << 20)


def _get_job(operation: RowOperation, shapes: Shapes) -> _RowJob:
    """Return the cached job of an operation. Its graph may hold tables of any size."""

    def make_job() -> _RowJob:
        graph = operation.build_graph(shapes)
        return _RowJob(GraphJob(graph, kind=f"rows: {graph.name}"))

    return _job_cache.get_or_create(
        (operation.cache_key, shapes), make_job, lambda row_job: operation.nbytes
    )


def _refuse_devices(
    operation: RowOperation,
    sample_type: ResolvedPrecision,
    request: PlaceRequest,
    context: str,
) -> None:
    """Refuse a device that the caller or the environment names for an operation that
    only NumPy computes.

    Errors   Unsupported, DTypeError; RLX_DEVICE is warned about and passed on.
    """
    place, _ = request.named_place()
    preferred = device_from_env() if place is None else None
    device = forced_device_from_env() if place is None else place.device
    reason = sample_type.host_only_reason or operation.host_only_reason
    if device is not None and device is not Device.CPU:
        device_context = f"{context} on {device.display}"
        if sample_type.host_only_reason:
            raise sample_type.refusal_error(device_context)
        raise Unsupported(device_context, reason, hint=Advice("use {}", device="cpu"))
    if preferred is not None and preferred is not Device.CPU:
        message = f"RLX_DEVICE={preferred.label} cannot run {context} and is ignored"
        warnings.warn(
            EnvironmentWarning(message, reason), stacklevel=caller_stacklevel()
        )


async def _run_on_device(
    operation: RowOperation, rows: Sequence[Array], candidate: Candidate
) -> Array:
    """Run all rows on the device of a candidate, in batches."""
    n_rows = len(rows[0])
    width = operation.row_width(tuple(array.shape for array in rows))
    batch_size = min(n_rows, max(1, MAX_BATCH_BYTES // (4 * width)))
    full_batches_stop = n_rows - n_rows % batch_size
    outputs: list[Array] = []
    engine = await pool.engine_async(candidate.device.label, candidate.adapter)
    async with engine_caches(engine).run_lock:
        for start, stop, size in (
            (0, full_batches_stop, batch_size),
            (full_batches_stop, n_rows, n_rows - full_batches_stop),
        ):
            if start < stop:
                shapes = tuple((size, *array.shape[1:]) for array in rows)
                program = await _get_program(engine, operation, shapes, candidate)
                starts = range(start, stop, size)
                await _run_batches(program, operation, rows, starts, outputs)
    parts = [operation.convert_graph_output(array) for array in outputs]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


async def _get_program(
    engine: Engine, operation: RowOperation, shapes: Shapes, candidate: Candidate
) -> CompiledGraph:
    """Return the graph compiled for a batch, cached by the engine for the next call."""
    key = (operation.cache_key, shapes)
    programs = engine_caches(engine).programs
    program: CompiledGraph | None = programs.get(key)
    if program is None:
        session = Session(candidate.device, adapter=candidate.adapter, strict=True)
        program = await session.compiled(operation.build_graph(shapes))
        programs.put(key, program, program.nbytes + operation.nbytes)
        programs.evict()
    return program


async def _run_batches(
    program: CompiledGraph,
    operation: RowOperation,
    rows: Sequence[Array],
    starts: range,
    outputs: list[Array],
) -> None:
    """Run batches of rows; each is handed to the device before the previous output is
    read back.
    """

    def feeds() -> Iterator[dict[str, Array]]:
        for start in starts:
            raise_if_cancelled()
            parts = (
                np.ascontiguousarray(array[start : start + starts.step])
                for array in rows
            )
            yield dict(zip(operation.input_names, parts, strict=True))

    await program.computed_each(feeds(), lambda outs: outputs.append(outs[0]))
