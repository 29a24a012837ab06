"""A function of rows that is NumPy on the host and one graph on any other engine.

Owns how such a call becomes a job for the chooser, and in which batches its rows go to
a device. Knows none of the functions that are made of it: they bring a `RowCall`.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, perf_counter_ns
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice
from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Backend
from rlxweb.callers import outside
from rlxweb.choose.again import LOST, done_again, told
from rlxweb.choose.chooser import Asked, Pick, choose_async
from rlxweb.choose.graphs import GraphJob
from rlxweb.decision.candidate import Candidate
from rlxweb.device import Device
from rlxweb.devices.place import Place
from rlxweb.devices.policy import device_from_env, forced_device_from_env
from rlxweb.errors import EnvironmentWarning, Unsupported
from rlxweb.ir.graph import Graph
from rlxweb.ir.shape import Shape
from rlxweb.kept import Kept
from rlxweb.results.ran import Ran, Stage
from rlxweb.runtime.compiled import CompiledGraph
from rlxweb.runtime.session import Session
from rlxweb.signal.precision import Taken
from rlxweb.stopping import check_stopped

Array = NDArray[Any]
Shapes = tuple[Shape, ...]

BATCH_BYTES: Final = 64 << 20
"""Of what goes to a device at once, and of what comes back."""


class RowCall(Protocol):
    """What is computed of rows, the leading axis of all its inputs and of its answer.

    inputs        their names in the graph
    only_on_host  why no device computes it; "" when one does
    nbytes        what it weighs beside its graph, to be kept
    """

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def only_on_host(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def key(self) -> Hashable:
        """What its graph is remembered under."""

    def on_host(self, *rows: Array) -> Array:
        """The answer by NumPy, for every type of samples."""

    def graph(self, shapes: Shapes) -> Graph:
        """The same of float32, for inputs of these shapes."""

    def of_device(self, out: Array) -> Array:
        """What the graph gave, as `on_host` gives it."""

    def width(self, shapes: Shapes) -> int:
        """float32 values of a row that go to the device, or that come back."""


async def computed(
    call: RowCall,
    rows: Sequence[Array],
    how: Taken,
    asked: Asked,
    doing: str,
    strict: bool,
) -> tuple[Array, Pick[GraphJob] | None]:
    """The answer for ready rows, and who gave it; None: it could only be NumPy.

    Errors   Unsupported, DTypeError for a device that was asked for and cannot do it;
    those of the device.
    """
    if how.only_on_host or call.only_on_host:
        _refuse_devices(call, how, asked, doing)
        return call.on_host(*rows), None
    if not all(one.size for one in rows):
        return call.on_host(*rows), None
    known = _job(call, tuple(one.shape for one in rows))
    pick = await choose_async(known.job, asked)
    begun = perf_counter_ns()
    try:
        answer = await _by(pick.candidate, call, rows)
        took_ns = perf_counter_ns() - begun
        known.ran(pick, took_ns)
        return answer, replace(pick, took_ns=took_ns)
    except LOST as error:
        if strict:
            raise

        async def again(way: Candidate) -> Array:
            return await _by(way, call, rows)

        ways = pick.decision.candidates
        answer, way, tries = await done_again(error, pick.candidate, ways, again)
        decision = told(pick.decision, tries)
        took_ns = perf_counter_ns() - begun
        return answer, replace(pick, candidate=way, decision=decision, took_ns=took_ns)


async def picked(call: RowCall, shapes: Shapes, asked: Asked) -> Candidate:
    """Who would run it, for rows of these shapes. Errors  those of the chooser."""
    return (await choose_async(_job(call, shapes).job, asked)).candidate


def ran_by(pick: Pick[GraphJob] | None, begun: float) -> Ran:
    """Who gave the answer of a call that began then (time.perf_counter)."""
    took = perf_counter() - begun
    if pick is None:
        return Ran(f"NumPy {np.__version__}", None, took, (Stage("compute", took),))
    compute = pick.took_ns * 1e-9
    stages = Stage("choose", max(0.0, took - compute)), Stage("compute", compute)
    return Ran(pick.engine, pick.decision, took, stages)


async def _by(way: Candidate, call: RowCall, rows: Sequence[Array]) -> Array:
    if way.device is Device.CPU:
        return call.on_host(*rows)
    return await _on_device(call, rows, way)


@dataclass(slots=True)
class _Known:
    """The job of a call, and the places where it has been run.

    The host's function is not the job's graph, so it has corrections of its own.
    """

    job: GraphJob
    warm: set[Place] = field(default_factory=set)

    def ran(self, pick: Pick[GraphJob], took_ns: float) -> None:
        """Let all but a first run correct the prices."""
        place = Place(pick.device, pick.candidate.adapter)
        if place in self.warm:
            pick.observe(took_ns)
        self.warm.add(place)


_jobs: Kept[Hashable, _Known] = Kept(64, 64 << 20)


def _job(call: RowCall, shapes: Shapes) -> _Known:
    """Priced once: its graph may hold tables of any size."""

    def made() -> _Known:
        graph = call.graph(shapes)
        return _Known(GraphJob(graph, kind=f"rows: {graph.name}"))

    return _jobs.made((call.key, shapes), made, lambda known: call.nbytes)


def _refuse_devices(call: RowCall, how: Taken, asked: Asked, doing: str) -> None:
    """What only NumPy computes, where a device is named by the caller or from outside.

    Errors   Unsupported, DTypeError; RLX_DEVICE is warned about and passed on.
    """
    place, _ = asked.place()
    soft = device_from_env() if place is None else None
    device = forced_device_from_env() if place is None else place.device
    why = how.only_on_host or call.only_on_host
    if device is not None and device is not Device.CPU:
        where = f"{doing} on {device.display}"
        if how.only_on_host:
            raise how.refused(where)
        raise Unsupported(where, why, hint=Advice("use {}", device="cpu"))
    if soft is not None and soft is not Device.CPU:
        said = f"RLX_DEVICE={soft.label} cannot run {doing} and is not followed"
        warnings.warn(EnvironmentWarning(said, why), stacklevel=outside())


async def _on_device(call: RowCall, rows: Sequence[Array], way: Candidate) -> Array:
    """All rows through the device of a way, in batches."""
    n_rows = len(rows[0])
    width = call.width(tuple(one.shape for one in rows))
    step = min(n_rows, max(1, BATCH_BYTES // (4 * width)))
    whole = n_rows - n_rows % step
    found: list[Array] = []
    backend = await pool.backend_async(way.device.label, way.adapter)
    async with backend.turn:
        for start, stop, size in ((0, whole, step), (whole, n_rows, n_rows - whole)):
            if start < stop:
                shapes = tuple((size, *one.shape[1:]) for one in rows)
                program = await _program(backend, call, shapes, way)
                starts = range(start, stop, size)
                await _each(program, call, rows, starts, found)
    parts = [call.of_device(one) for one in found]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


async def _program(
    backend: Backend, call: RowCall, shapes: Shapes, way: Candidate
) -> CompiledGraph:
    """The graph compiled for a batch, kept by the engine for the next call."""
    key = (call.key, shapes)
    program: CompiledGraph | None = backend.kept.get(key)
    if program is None:
        session = Session(way.device, adapter=way.adapter, strict=True)
        program = await session.compiled(call.graph(shapes))
        backend.kept.put(key, program, program.nbytes + call.nbytes)
        backend.kept.trim()
    return program


async def _each(
    program: CompiledGraph,
    call: RowCall,
    rows: Sequence[Array],
    starts: range,
    found: list[Array],
) -> None:
    """Batches of rows, one handed over before the last is read back."""

    def feeds() -> Iterator[dict[str, Array]]:
        for at in starts:
            check_stopped()
            parts = (np.ascontiguousarray(one[at : at + starts.step]) for one in rows)
            yield dict(zip(call.inputs, parts, strict=True))

    await program.computed_each(feeds(), lambda outs: found.append(outs[0]))
