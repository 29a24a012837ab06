"""NumPy on the CPU: always there, the embedded default and the definition of right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from rlxweb.backends.array import ArrayBackend, array_target
from rlxweb.backends.array_residents import OwnArray
from rlxweb.backends.cpu_attention import COMPILED as ATTENTION
from rlxweb.backends.cpu_attention import attention_kernels, joins
from rlxweb.backends.cpu_blocks import RegionByNumPy
from rlxweb.backends.cpu_convolution import COMPILED as CONVOLUTIONS
from rlxweb.backends.cpu_convolution import conv_kernels
from rlxweb.backends.cpu_lines import COMPILED as LINES
from rlxweb.backends.cpu_lines import line_kernels
from rlxweb.backends.cpu_reductions import COMPILED as REDUCTIONS
from rlxweb.backends.cpu_reductions import reduction_kernels
from rlxweb.backends.cpu_regions import RegionCall, region_kernels, region_of
from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.compile.plan import Step
from rlxweb.host.pooling import ROWS as POOLS
from rlxweb.host.variants import VARIANTS, Variant
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry

ROWS: Final = (*LINES, *ATTENTION, *CONVOLUTIONS, *POOLS, *REDUCTIONS, *VARIANTS)
"""Ways to run an op: by compiled code, by NumPy used well."""
WORKSHOPS: Final = (
    region_kernels,
    line_kernels,
    attention_kernels,
    conv_kernels,
    reduction_kernels,
)
"""What this engine has compiled."""


class CpuBackend(ArrayBackend):
    """`ArrayBackend` over NumPy itself; without `variants` by the references alone."""

    target = array_target("NumPy", frozenset(DType))

    def __init__(self, variants: Sequence[Variant] = ROWS) -> None:
        adapter, api, driver = CPU_ENGINE
        super().__init__(
            np,
            replace(self.target, joins=joins) if variants else self.target,
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
        """By compiled code where that is open, else in blocks where they are many.

        The references define what is right.
        """
        nodes = [graph.node(i) for i in step.nodes]
        if not self.variants or not all(registry.is_ours(node.op) for node in nodes):
            return None
        functions = [self._function(graph, node) for node in nodes]
        by_numpy = RegionByNumPy(graph, nodes, functions, step.reads)
        is_open = region_kernels.is_open
        region = region_of(graph, step.nodes, step.reads) if is_open else None
        if region is not None:
            return RegionCall(region, nodes[-1], by_numpy), step.reads
        if not by_numpy.is_cut:
            return None
        return by_numpy.call, step.reads
