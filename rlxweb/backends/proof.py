"""The small graph an engine must compute right before it is used.

A library may import, find its device and still compute nonsense: kernels of another
generation of GPU, a driver of another version. The port of WGSL has a proof of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.backends.protocol import Array, Backend
from rlxweb.compile.pipeline import compile_graph
from rlxweb.errors import AdapterMissing
from rlxweb.ir.graph import Graph

_CLOSE = 1e-4


async def prove_engine(backend: Backend, doing: str) -> None:
    """Demand right numbers of a small graph in float32.

    Errors   AdapterMissing for wrong ones, and whatever the engine raises.
    """
    graph, feeds, want = _question()
    program = await backend.prepare(compile_graph(graph, backend.target))
    try:
        got = (await backend.run(program, feeds))[0]
    finally:
        await backend.release(program)
    if got.shape != want.shape or not np.allclose(got, want, _CLOSE, _CLOSE):
        raise AdapterMissing(
            doing,
            f"{backend.name} computes wrong: {got.tolist()}",
            f"{want.tolist()} is right",
            "update the library or the driver, or choose another device",
        )


def _question() -> tuple[Graph, dict[str, Any], Array]:
    """A product, a function, a transform and a sum, and what they give."""
    x = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(3, 8)
    graph = Graph("probe")
    given = graph.input("x", x.shape)
    made = graph.exp(graph.matmul(given, graph.transpose(given, (1, 0))))
    re, im = graph.rfft(made)
    graph.set_outputs([graph.sum(re * re + im * im, -1)])
    wide = x.astype(np.float64)
    spectra = np.fft.rfft(np.exp(wide @ wide.T))
    return graph, {"x": x}, (np.abs(spectra) ** 2).sum(axis=-1)
