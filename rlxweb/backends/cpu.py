"""NumPy on the CPU: always there, the embedded default and the definition of right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

import numpy as np

from rlxweb.backends.array import ArrayBackend, ArrayProgram, Work, array_target
from rlxweb.backends.array_residents import OwnArray
from rlxweb.backends.cpu_attention import COMPILED as ATTENTION
from rlxweb.backends.cpu_attention import attention_kernels
from rlxweb.backends.cpu_attention import joins as joins_compiled
from rlxweb.backends.cpu_blocks import RegionByNumPy
from rlxweb.backends.cpu_convolution import COMPILED as CONVOLUTIONS
from rlxweb.backends.cpu_convolution import conv_kernels
from rlxweb.backends.cpu_halves import ByFloat32, by_float32, half_kernels
from rlxweb.backends.cpu_lines import COMPILED as LINES
from rlxweb.backends.cpu_lines import line_kernels
from rlxweb.backends.cpu_phases import phase_kernels
from rlxweb.backends.cpu_products import product_kernels
from rlxweb.backends.cpu_recurrence import COMPILED as RECURRENCES
from rlxweb.backends.cpu_recurrence import RecurrenceCall, recurrence_kernels
from rlxweb.backends.cpu_reductions import COMPILED as REDUCTIONS
from rlxweb.backends.cpu_reductions import reduction_kernels
from rlxweb.backends.cpu_regions import RegionCall, region_kernels, region_of
from rlxweb.backends.cpu_tails import COMPILED as PRODUCTS
from rlxweb.backends.cpu_tails import ProductCall, Tailed, is_joined, joined
from rlxweb.backends.cpu_tape import LEAVES, Way, segments_of, tape_kernels, units_of
from rlxweb.backends.protocol import CPU_ENGINE
from rlxweb.backends.wasm_attention import ATTENTION as ATTENTION_IN_THE_TAB
from rlxweb.backends.wasm_attention import joins as joins_in_the_tab
from rlxweb.backends.wasm_lines import LINES as IN_THE_TAB
from rlxweb.backends.wasm_tails import SHARED, SharedCall, shared_regions
from rlxweb.compile.plan import Plan, Step
from rlxweb.host.pooling import ROWS as POOLS
from rlxweb.host.variants import VARIANTS, Variant
from rlxweb.host.wasm_products import Product
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Attrs, Op, TensorType, Types, registry
from rlxweb.stopping import check_stopped

_OWN: Final = (
    *IN_THE_TAB,
    *ATTENTION_IN_THE_TAB,
    *SHARED,
    *LINES,
    *ATTENTION,
    *PRODUCTS,
    *CONVOLUTIONS,
    *POOLS,
    *REDUCTIONS,
    *RECURRENCES,
    *VARIANTS,
)
ROWS: Final = (*_OWN, *by_float32(_OWN))
"""Ways to run an op: by compiled code, by NumPy used well."""
WORKSHOPS: Final = (
    region_kernels,
    line_kernels,
    attention_kernels,
    conv_kernels,
    half_kernels,
    phase_kernels,
    reduction_kernels,
    recurrence_kernels,
    tape_kernels,
    product_kernels,
    shared_regions,
)
"""What this engine has compiled."""


def joins(op: Op, inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Where what spells an op out is better done as that op."""
    about = op, inputs, out, attrs
    return joins_in_the_tab(*about) or joins_compiled(*about)


def _is_weight(graph: Graph, i: int) -> bool:
    """Is it a param or a constant, or such a one turned?"""
    node = graph.node(i)
    while node.op in ("transpose", "reshape"):
        node = graph.node(node.inputs[0])
    return node.op in LEAVES


def _in_parts(
    graph: Graph,
    parts: Sequence[Callable[[dict[int, OwnArray]], None]],
    values: dict[int, OwnArray],
) -> list[OwnArray]:
    for part in parts:
        check_stopped()
        part(values)
    return [values[i] for i in graph.outputs]


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

    async def prepare(self, plan: Plan) -> ArrayProgram:
        """Small steps that follow each other are one call, where code is compiled."""
        program = await super().prepare(plan)
        for call in program.calls:
            function = call.function
            if isinstance(function, ByFloat32):
                each = enumerate(call.inputs)
                function.keep([at for at, i in each if _is_weight(plan.graph, i)])
                function = function.function
            if isinstance(function, SharedCall):
                function = function.product
            if isinstance(function, ProductCall | RecurrenceCall | Product):
                function.is_weight = _is_weight(plan.graph, call.inputs[1])
        if self.variants and tape_kernels.is_open and not tape_kernels.why_not:
            ways: list[Way] = []
            for at, group in groupby(program.calls, attrgetter("step")):
                step, calls = plan.steps[at], list(group)
                if any(is_joined(call.function) for call in calls):
                    ways.append((None, calls))
                    continue
                whole = step.kind == "region"
                own = [calls] if whole else [[call] for call in calls]
                ways += zip(units_of(plan.graph, step), own, strict=True)
            parts = segments_of(plan, ways, self.call_all)
            if parts is not None:
                program.compute = partial(_in_parts, plan.graph, parts)
        return program

    def _together(
        self, graph: Graph, todo: list[Work], steps: list[int]
    ) -> tuple[list[Work], list[int]]:
        """Products and what is done with them, where that is one region's alone."""
        made = {node.id: at for at, (node, _, _) in enumerate(todo)}
        uses = Counter(i for _, _, inputs in todo for i in inputs)
        uses.update(graph.outputs)
        todo, gone = list(todo), set()
        for at, (_, function, inputs) in enumerate(todo):
            if not isinstance(function, RegionCall):
                continue
            for i in inputs:
                before = made.get(i)
                if before is None or before in gone or uses[i] > 1:
                    continue
                if not isinstance(todo[before][1], Tailed):
                    continue
                one = joined(graph, todo[before], todo[at], function)
                if one is not None:
                    todo[at] = one
                    steps[at] = steps[before]
                    gone.add(before)
                    break
        left = [at for at in range(len(todo)) if at not in gone]
        return [todo[at] for at in left], [steps[at] for at in left]

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
