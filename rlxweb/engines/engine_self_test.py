"""Small graph that an engine must compute correctly before it is used.

A library may import, find its device and still compute nonsense: kernels of another
generation of GPU, a driver of another version. The port of WGSL has a proof of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import AdapterMissing, DeviceError
from rlxweb.engines.protocol import Array, Engine, output_fault, output_types
from rlxweb.ir.graph import Graph

_TOLERANCE = 1e-4
_ADVICE = "update the library or the driver, or choose another device"


async def run_self_test(engine: Engine, context: str) -> None:
    """Run a small graph in float32 and require the correct result.

    Errors   AdapterMissing for wrong ones and for another dtype or shape than declared,
    and whatever the engine raises.
    """
    graph, feeds, want = _test_graph()
    program = await engine.prepare(compile_graph(graph, engine.target))
    try:
        outputs = await engine.run(program, feeds)
    except DeviceError as error:
        if type(error) is not DeviceError:
            raise
        # The engine's own check of its outputs, or what its code raised.
        raise AdapterMissing(context, error.problem, hint=_ADVICE) from error
    finally:
        await program.close()
    fault = output_fault(output_types(graph), outputs)
    if fault:
        raise AdapterMissing(context, f"{engine.name} returned {fault}", hint=_ADVICE)
    (got,) = outputs
    if not np.allclose(got, want, _TOLERANCE, _TOLERANCE):
        raise AdapterMissing(
            context,
            f"{engine.name} computes a wrong result: {got.tolist()}",
            f"expected {want.tolist()}",
            _ADVICE,
        )


def _test_graph() -> tuple[Graph, dict[str, Any], Array]:
    """Return a graph of a product, an exponential, a transform and a sum, its feeds and
    the expected result.
    """
    x = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(3, 8)
    graph = Graph("probe")
    graph_input = graph.input("x", x.shape)
    exponentials = graph.exp(
        graph.matmul(graph_input, graph.transpose(graph_input, (1, 0)))
    )
    re, im = graph.rfft(exponentials)
    graph.set_outputs([graph.sum(re * re + im * im, -1)])
    x_float64 = x.astype(np.float64)
    spectra = np.fft.rfft(np.exp(x_float64 @ x_float64.T))
    return graph, {"x": x}, (np.abs(spectra) ** 2).sum(axis=-1)
