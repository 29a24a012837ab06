"""One batch after the other: in order, bounded, and with errors that name the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import InputError, SessionClosed, ShapeError
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from tests.ports import native
from tests.threads import in_a_loop

SHAPE = (5, 7)


def graph() -> rlx.Graph:
    made = rlx.Graph("scaled")
    x, w = made.input("x", SHAPE), made.param("w", SHAPE)
    made.set_outputs([x * w, made.sum(x, 1)])
    return made


@pytest.fixture
def compiled() -> rlx.CompiledGraph:
    made = rlx.Session("cpu").compile(graph())
    made.set_param("w", np.full(SHAPE, 2, np.float32))
    return made


def batches(count: int) -> Iterator[dict[str, Any]]:
    for at in range(count):
        yield {"x": np.full(SHAPE, at, np.float32)}


def check(outs: list[list[Any]], count: int) -> None:
    assert len(outs) == count
    for at, (scaled, summed) in enumerate(outs):
        np.testing.assert_array_equal(scaled, np.full(SHAPE, 2 * at))
        np.testing.assert_array_equal(summed, np.full(SHAPE[:1], 7 * at))


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_every_batch_in_order(compiled: rlx.CompiledGraph, count: int) -> None:
    check(compiled.map(batches(count)), count)
    check(in_a_loop(compiled.map_async(batches(count))), count)


def test_take_keeps_nothing(compiled: rlx.CompiledGraph) -> None:
    taken: list[list[Any]] = []
    assert compiled.map(batches(3), taken.append) == []
    check(taken, 3)


def test_a_runner_maps_where_it_runs() -> None:
    runner = rlx.GraphDevices(graph(), rlx.DevicePolicy.only("cpu"))
    runner.set_param("w", np.full(SHAPE, 2, np.float32))
    check(runner.map(batches(4)), 4)
    taken: list[list[Any]] = []
    assert runner.map(batches(2), taken.append, device="cpu") == []
    check(taken, 2)


def test_a_wrong_batch_is_numbered(compiled: rlx.CompiledGraph) -> None:
    def some() -> Iterator[dict[str, Any]]:
        yield from batches(2)
        yield {"x": np.ones((2, 2), np.float32)}

    taken: list[list[Any]] = []
    with pytest.raises(ShapeError, match="batch 2: "):
        compiled.map(some(), taken.append)
    check(taken, 2)
    check(compiled.map(batches(2)), 2)


def test_what_lies_on_a_device_is_run_one_by_one(compiled: rlx.CompiledGraph) -> None:
    there = {"x": compiled.put(np.ones(SHAPE, np.float32))}
    with pytest.raises(InputError, match="batch 0: run 'scaled', input 'x': it lies"):
        compiled.map([there])


def test_errors_of_the_caller_end_it(compiled: rlx.CompiledGraph) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield from batches(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compiled.map(broken())
    compiled.close()
    with pytest.raises(SessionClosed):
        compiled.map(batches(1))


@pytest.mark.parametrize("overlaps", [False, True])
def test_on_an_adapter(adapter: Want, overlaps: bool) -> None:
    """A map on an adapter is right, also where runs are handed over ahead of reads."""
    with native(adapter) as port:
        engine = WebGpuBackend(port, overlaps=overlaps)
        program = drive(engine.prepare(compile_graph(graph(), engine.target)))
        drive(engine.set_param(program, "w", np.full(SHAPE, 2, np.float32)))
        outs: list[list[Any]] = []
        drive(engine.run_each(program, batches(6), outs.append))
        check(outs, 6)
