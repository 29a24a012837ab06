"""Graph that is prepared once on the CPU's engine and run several times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlxweb.compiler.pipeline import compile_graph
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.evaluate import evaluate
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph
from tests.engines_under_test import Array


class PreparedCpuGraph:
    """Graph prepared on the CPU engine, with its params set."""

    def __init__(self, graph: Graph, params: Mapping[str, Array] | None = None) -> None:
        self.engine, self.graph = CpuEngine(), graph
        plan = compile_graph(graph, self.engine.target)
        self.program = run_blocking(self.engine.prepare(plan))
        self.params: dict[str, Array] = {}
        for name, value in (params or {}).items():
            self.set_param(name, value)

    def set_param(self, name: str, value: Array) -> None:
        self.params[name] = value
        run_blocking(self.program.set_param(name, value))

    def run(self, **feeds: Array) -> list[Array]:
        return run_blocking(self.engine.run(self.program, feeds))

    def check_outputs(self, feeds: Mapping[str, Array], atol: float = 2e-6) -> None:
        """Compare three runs, and a timed one, with NumPy: constant params are packed
        at the second.

        atol  relative to the largest magnitude of an output, or to 1 if that is less
        """
        expected = evaluate(self.graph, {**feeds, **self.params}, promote=True)
        results = [self.run(**feeds) for _ in range(3)]
        results.append(run_blocking(self.engine.run_timed(self.program, feeds)).outputs)
        for outputs in results:
            for got, want in zip(outputs, expected, strict=True):
                peak = max(1.0, float(np.abs(want).max()))
                np.testing.assert_allclose(got, want, 2e-5, atol * peak)
