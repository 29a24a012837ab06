"""Elementwise regions computed by blocked NumPy give the same numbers as unblocked
ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.codegen.array_tiles import TILE_ELEMENTS
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import GraphError
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.cpu_numpy_elementwise import NumpyRegion, block_size
from rlxweb.gpu.coroutine_runner import run_blocking

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "a line": [(70_000,), (1,)],
    "rows": [(300, 517), (517,), (300, 1)],
    "long rows": [(2, 1, 50_005), (1, 1, 1), (2, 1, 1)],
    "shares": [(300, 5000), (5000,), (300, 1)],
    "read in more ways than two": [(40, 3, 50, 19), (40, 1, 50, 1), (3, 1, 19)],
    "columns": [(70_000, 2), (2,), (70_000, 1)],
}


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.filterwarnings("error")
def test_blocked_regions_are_bit_identical(
    shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocked regions give the references' bits for any layout of their inputs."""
    monkeypatch.setenv("RLX_FAST", "off")
    graph = rlx.Graph("chain")
    inputs = [graph.input(f"x{index}", shape) for index, shape in enumerate(shapes)]
    value = inputs[0]
    for operand in inputs[1:]:
        value = graph.gelu(value * operand) + 0.5
    graph.set_outputs([graph.where(graph.sqrt(value) > 0.25, value, inputs[0])])
    rng = np.random.default_rng(1)
    feeds: dict[str, Any] = {
        f"x{index}": np.asfortranarray(rng.standard_normal(shape, np.float32) * 3)
        for index, shape in enumerate(shapes)
    }
    got, want = (
        run_blocking(engine.run(run_blocking(engine.prepare(plan)), feeds))
        for engine in (CpuEngine(), CpuEngine(()))
        for plan in [compile_graph(graph, engine.target)]
    )
    np.testing.assert_array_equal(got[0], want[0])


LONG_SIZE = 100_000


def gelu_region(function: Any) -> NumpyRegion:
    """Return a region of one op with the passes of gelu, computed by the function."""
    graph = rlx.Graph("one")
    x = graph.input("x", (LONG_SIZE,))
    graph.set_outputs([graph.gelu(x)])
    node = graph.node(graph.outputs[0])
    return NumpyRegion(graph, [node], [function], node.inputs)


def test_large_arrays_are_computed_in_blocks() -> None:
    block_sizes: list[int] = []

    def halve(attrs: object, x: Any) -> Any:
        block_sizes.append(x.size)
        return x / 2

    numpy_region = gelu_region(halve)
    x = np.linspace(-3, 3, LONG_SIZE, dtype=np.float32)
    assert numpy_region.is_blocked
    np.testing.assert_array_equal(numpy_region(x), x / 2)
    assert sum(block_sizes) == LONG_SIZE
    assert max(block_sizes) < LONG_SIZE / 4


@pytest.mark.parametrize(
    ("numel", "passes", "max_size"),
    [
        (1 << 15, 60, 0),
        (1 << 17, 60, 1 << 14),
        (1 << 17, 3, 0),
        (1 << 20, 60, TILE_ELEMENTS),
        (1 << 22, 3, TILE_ELEMENTS),
        (1 << 22, 1, 0),
    ],
)
def test_blocking_only_where_it_pays_off(
    numel: int, passes: float, max_size: int
) -> None:
    assert block_size(numel, passes) == max_size


def test_a_wrong_dtype_is_an_error() -> None:
    x = np.zeros(LONG_SIZE, np.float32)
    with pytest.raises(GraphError):
        gelu_region(lambda attrs, x: x.astype(np.float64))(x)
