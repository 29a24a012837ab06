"""Transforms that work in fours: every shape of their text, on the CPU's adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb import Graph
from rlxweb.compile.pipeline import compile_graph
from rlxweb.cost.graph_work import asked_of
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Want
from rlxweb.ir.op import registry
from rlxweb.recipes.chirp_fours import reversed_digits
from rlxweb.recipes.fft_fours import LEAST, MOST, radices_of
from tests.agreement import on_adapter

JOBS: list[tuple[str, int, dict[str, Any]]] = [
    ("fft", 32, {}),
    ("fft", 80, {"inverse": True, "norm": "ortho"}),
    ("fft", 256, {"inverse": True}),
    ("fft", 480, {}),
    ("fft", 1024, {}),
    ("fft", 4096, {"norm": "forward"}),
    ("fft", 1009, {}),
    ("fft", 67, {"inverse": True}),
    ("fft", 1439, {"norm": "ortho"}),
    ("rfft", 64, {}),
    ("rfft", 512, {"norm": "ortho"}),
    ("rfft", 8192, {}),
    ("rfft", 134, {}),
    ("rfft", 197, {}),
    ("irfft", 96, {}),
    ("irfft", 2048, {}),
    ("irfft", 201, {}),
    ("irfft", 100, {}),
]


@pytest.mark.parametrize(("op", "n", "how"), JOBS, ids=str)
def test_they_are_numpys(op: str, n: int, how: dict[str, Any], adapter: Want) -> None:
    """Planes and pairs, in workgroup memory and in scratch, with and without rows left
    over; of primes the convolution with a chirp, as one kernel.
    """
    name = f"{op}, lane a row, in fours"
    far, served = _far(name, op, n, how, adapter)
    # A length without whole fours is left to other rows.
    assert served == ((op, n) != ("irfft", 100))
    assert far < 2e-6


def _far(
    name: str, op: str, n: int, how: dict[str, Any], adapter: Want
) -> tuple[float, bool]:
    """How far a transform of 21 rows is from NumPy's, and whether the row served it."""
    engine = on_adapter(adapter).forced(name)
    width = {"fft": 2 * n, "rfft": n, "irfft": 2 * (n // 2 + 1)}[op]
    x = np.random.default_rng(n).standard_normal((21, width)).astype(np.float32)
    graph = Graph("fours")
    attrs = {"n": n, **how} if op == "irfft" else how
    made = graph.apply(op, graph.input("x", x.shape), **attrs)
    graph.set_outputs([made])
    node = graph.node(made.id)
    own, *rest = asked_of(graph, node)
    served = engine.variants_for(own, *rest)
    assert served in ((), (name,))
    program = drive(engine.prepare(compile_graph(graph, engine.target)))
    (found,) = drive(engine.run(program, {"x": x}))
    drive(engine.release(program))
    want = registry.get(op).reference(np, node.attrs, x.astype(np.float64))
    return float(np.abs(found - want).max() / np.abs(want).max()), bool(served)


PRIMES = [
    ("fft", 3 * 37, "lane a row"),
    ("rfft", 4 * 61, "lane a row"),
    ("irfft", 2 * 53, "lane a row"),
    ("fft", 2 * 59, "unrolled passes"),
]


@pytest.mark.parametrize(("op", "n", "way"), PRIMES, ids=str)
def test_primes_to_61_are_one_butterfly(
    op: str, n: int, way: str, adapter: Want
) -> None:
    """Above any radix that is chosen freely."""
    far, served = _far(f"{op}, {way}", op, n, {}, adapter)
    assert served
    assert far < 2e-6


@pytest.mark.parametrize("radices", [(8, 4), (4, 8, 16), (3, 5, 8), (2, 3, 4, 4)])
def test_bins_lie_with_their_digits_reversed(radices: tuple[int, ...]) -> None:
    """As passes in place leave them, which NumPy does here one by one."""
    n = int(np.prod(radices))
    x = np.random.default_rng(n).standard_normal(n) + 0j
    cells, room = x.reshape(1, n), n
    for radix in radices:
        room //= radix
        cells = np.fft.fft(cells.reshape(-1, radix, room), axis=1)
        turns = np.outer(np.arange(radix), np.arange(room))
        cells = (cells * np.exp(-2j * np.pi * turns / (radix * room))).reshape(-1, room)
    assert cells.ravel() == pytest.approx(np.fft.fft(x)[reversed_digits(radices)])


@given(st.integers(LEAST // 4, MOST // 4))
def test_passes_are_of_whole_fours(quarter: int) -> None:
    """The factors make the length, and the last pass has fours that lie in fours."""
    n = 4 * quarter
    radices = radices_of(n)
    if radices is None:
        return
    assert np.prod(radices) == n
    assert max(radices) <= 16
    assert radices[-1] % 4 == 0
    assert (n // radices[-1]) % 4 == 0
