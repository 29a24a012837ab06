"""Elementwise regions by NumPy in blocks: the same numbers, from fewer at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlxweb as rlx
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.cpu_blocks import RegionByNumPy, block_size
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import GraphError
from rlxweb.gpu.drive import drive
from rlxweb.host.boxes import SHARE

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
def test_blocks_give_the_same_bits(
    shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions in blocks give the references' bits for any layout of their inputs."""
    monkeypatch.setenv("RLX_FAST", "off")
    graph = rlx.Graph("chain")
    given = [graph.input(f"x{at}", shape) for at, shape in enumerate(shapes)]
    value = given[0]
    for one in given[1:]:
        value = graph.gelu(value * one) + 0.5
    graph.set_outputs([graph.where(graph.sqrt(value) > 0.25, value, given[0])])
    rng = np.random.default_rng(1)
    feeds: dict[str, Any] = {
        f"x{at}": np.asfortranarray(rng.standard_normal(shape, np.float32) * 3)
        for at, shape in enumerate(shapes)
    }
    found, want = (
        drive(backend.run(drive(backend.prepare(plan)), feeds))
        for backend in (CpuBackend(), CpuBackend(()))
        for plan in [compile_graph(graph, backend.target)]
    )
    np.testing.assert_array_equal(found[0], want[0])


LONG = 100_000


def region(function: Any) -> RegionByNumPy:
    """One op with the passes of gelu, computed by the function."""
    graph = rlx.Graph("one")
    x = graph.input("x", (LONG,))
    graph.set_outputs([graph.gelu(x)])
    node = graph.node(graph.outputs[0])
    return RegionByNumPy(graph, [node], [function], node.inputs)


def test_large_ones_are_cut() -> None:
    calls: list[int] = []

    def halved(attrs: object, x: Any) -> Any:
        calls.append(x.size)
        return x / 2

    one, x = region(halved), np.linspace(-3, 3, LONG, dtype=np.float32)
    assert one.is_cut
    np.testing.assert_array_equal(one(x), x / 2)
    assert sum(calls) == LONG
    assert max(calls) < LONG / 4


@pytest.mark.parametrize(
    ("numel", "passes", "most"),
    [
        (1 << 15, 60, 0),
        (1 << 17, 60, 1 << 14),
        (1 << 17, 3, 0),
        (1 << 20, 60, SHARE),
        (1 << 22, 3, SHARE),
        (1 << 22, 1, 0),
    ],
)
def test_only_what_gains_is_cut(numel: int, passes: float, most: int) -> None:
    assert block_size(numel, passes) == most


def test_a_wrong_dtype_is_an_error() -> None:
    x = np.zeros(LONG, np.float32)
    with pytest.raises(GraphError):
        region(lambda attrs, x: x.astype(np.float64))(x)
