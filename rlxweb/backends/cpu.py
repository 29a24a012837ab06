"""NumPy on the CPU: always there, the embedded default and the definition of right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlxweb.backends.array import ArrayBackend, array_target
from rlxweb.backends.array_residents import OwnArray
from rlxweb.backends.cpu_lines import COMPILED
from rlxweb.backends.cpu_regions import RegionCall, region_kernels, region_of
from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.compile.plan import Step
from rlxweb.host.variants import VARIANTS, Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.verify import wrong_result


class CpuBackend(ArrayBackend):
    """`ArrayBackend` over NumPy itself; without `variants` by the references alone."""

    target = array_target("NumPy", frozenset(DType))

    def __init__(self, variants: Sequence[Variant] = (*COMPILED, *VARIANTS)) -> None:
        adapter, api, driver = CPU_ENGINE
        super().__init__(
            np,
            self.target,
            name=adapter,
            api=api,
            driver=driver,
            to_device=np.asarray,
            to_host=np.asarray,
            variants=variants,
        )

    def _region(
        self, graph: Graph, step: Step
    ) -> tuple[Callable[..., OwnArray], tuple[int, ...]] | None:
        """By compiled code where that is open; the references define what is right."""
        if not self.variants or not region_kernels.is_open:
            return None
        region = region_of(graph, step.nodes, step.reads)
        if region is None:
            return None
        nodes = [graph.node(i) for i in step.nodes]
        functions = [self._function(graph, node) for node in nodes]
        literals = {
            i: graph.node(i).attrs["value"].array
            for node in nodes
            for i in node.inputs
            if i not in step.nodes and i not in step.reads
        }

        def by_numpy(*arrays: Any) -> Any:
            values = literals | dict(zip(step.reads, arrays, strict=True))
            for node, function in zip(nodes, functions, strict=True):
                given = [values[i] for i in node.inputs]
                made = np.asarray(function(node.attrs, *given))
                if made.dtype != node.type.dtype.numpy or made.shape != node.type.shape:
                    raise wrong_result(node, made.shape, made.dtype)
                values[node.id] = made
            return values[nodes[-1].id]

        call: Callable[..., OwnArray] = RegionCall(region, nodes[-1], by_numpy)
        return call, step.reads
