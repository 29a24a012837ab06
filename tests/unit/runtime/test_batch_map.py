"""Mapping over batches: ordered, bounded, and with errors that name the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import InputError, SessionClosed, ShapeError
from rlxweb.engines.capabilities import run_each
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.gpu_ports import open_native_port
from tests.run_in_threads import run_in_event_loop

SHAPE = (5, 7)


def scaled_graph() -> rlx.Graph:
    """Build the graph of x * w and the row sums of x."""
    new_graph = rlx.Graph("scaled")
    x, w = new_graph.input("x", SHAPE), new_graph.param("w", SHAPE)
    new_graph.set_outputs([x * w, new_graph.sum(x, 1)])
    return new_graph


@pytest.fixture
def compiled() -> rlx.CompiledGraph:
    compiled_graph = rlx.Session("cpu").compile(scaled_graph())
    compiled_graph.set_param("w", np.full(SHAPE, 2, np.float32))
    return compiled_graph


def make_batches(count: int) -> Iterator[dict[str, Any]]:
    """Yield batches filled with their index."""
    for index in range(count):
        yield {"x": np.full(SHAPE, index, np.float32)}


def check_outputs(outputs: list[list[Any]], count: int) -> None:
    """Check the outputs of this many batches."""
    assert len(outputs) == count
    for index, (scaled, row_sums) in enumerate(outputs):
        np.testing.assert_array_equal(scaled, np.full(SHAPE, 2 * index))
        np.testing.assert_array_equal(row_sums, np.full(SHAPE[:1], 7 * index))


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_batches_keep_their_order(compiled: rlx.CompiledGraph, count: int) -> None:
    check_outputs(compiled.map(make_batches(count)), count)
    check_outputs(run_in_event_loop(compiled.map_async(make_batches(count))), count)


def test_callback_replaces_returned_outputs(compiled: rlx.CompiledGraph) -> None:
    outputs: list[list[Any]] = []
    assert compiled.map(make_batches(3), outputs.append) == []
    check_outputs(outputs, 3)


def test_graph_devices_map() -> None:
    runner = rlx.GraphDevices(scaled_graph(), rlx.DevicePolicy.only("cpu"))
    runner.set_param("w", np.full(SHAPE, 2, np.float32))
    check_outputs(runner.map(make_batches(4)), 4)
    outputs: list[list[Any]] = []
    assert runner.map(make_batches(2), outputs.append, device="cpu") == []
    check_outputs(outputs, 2)


def test_error_gives_the_batch_number(compiled: rlx.CompiledGraph) -> None:
    def batches_with_wrong_shape() -> Iterator[dict[str, Any]]:
        yield from make_batches(2)
        yield {"x": np.ones((2, 2), np.float32)}

    outputs: list[list[Any]] = []
    with pytest.raises(ShapeError, match="batch 2: "):
        compiled.map(batches_with_wrong_shape(), outputs.append)
    check_outputs(outputs, 2)
    check_outputs(compiled.map(make_batches(2)), 2)


def test_device_arrays_are_not_mapped(compiled: rlx.CompiledGraph) -> None:
    device_inputs = {"x": compiled.put(np.ones(SHAPE, np.float32))}
    with pytest.raises(
        InputError, match="batch 0: run 'scaled', input 'x': the array is on"
    ):
        compiled.map([device_inputs])


def test_errors_of_the_iterable_propagate(compiled: rlx.CompiledGraph) -> None:
    def failing_batches() -> Iterator[dict[str, Any]]:
        yield from make_batches(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compiled.map(failing_batches())
    compiled.close()
    with pytest.raises(SessionClosed):
        compiled.map(make_batches(1))


@pytest.mark.parametrize("overlaps", [False, True])
def test_map_on_adapter(adapter: AdapterRequest, overlaps: bool) -> None:
    """Mapping on an adapter is correct, also when uploads overlap reads."""
    with open_native_port(adapter) as port:
        engine = WebGpuEngine(port, overlaps_runs=overlaps)
        program = run_blocking(
            engine.prepare(compile_graph(scaled_graph(), engine.target))
        )
        run_blocking(program.set_param("w", np.full(SHAPE, 2, np.float32)))
        outputs: list[list[Any]] = []
        run_blocking(run_each(engine, program, make_batches(6), outputs.append))
        check_outputs(outputs, 6)
