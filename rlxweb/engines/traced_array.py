"""Array engine on a library with a tracing compiler: a whole plan becomes one function.

Such a library follows a computation once, on arrays without values, and then runs what
it made of it. What looks at values (an index that may be outside its table) is looked
at within, brought back with the results and judged after them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.engines.array import ArrayEngine, Compute
from rlxweb.engines.array_device_arrays import LibraryArray
from rlxweb.engines.array_node_calls import NodeCall
from rlxweb.engines.capabilities import time_whole_run
from rlxweb.engines.protocol import Array, Program
from rlxweb.engines.timed_run_result import TimedRun
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry

LeafValues = dict[int, LibraryArray]


class TracedArrayEngine(ArrayEngine):
    """Array engine whose library traces and compiles whole plans; see `ArrayEngine`.

    trace   a function of a list of arrays → the same, compiled; None: nothing is
    synchronize  what is done with results before they are anybody's, on any thread
    Ops of a caller's own may look at values: a graph that has one runs op by op.
    """

    def __init__(
        self,
        *array_arguments: Any,
        trace: Callable[..., Any] | None,
        synchronize: Callable[..., None] = lambda *results: None,
        **options: Any,
    ) -> None:
        self._trace, self._synchronize = trace, synchronize
        self.skips = trace is not None
        super().__init__(*array_arguments, **options)

    async def run_timed(self, program: Program, feeds: Mapping[str, Array]) -> TimedRun:
        """Run a program and time it; a plan that became one function has no steps to be
        timed.
        """
        if self._trace is None:
            return await super().run_timed(program, feeds)
        return await time_whole_run(self, program, feeds)

    def _bind_computation(self, graph: Graph, calls: Sequence[NodeCall]) -> Compute:
        run_graph = self._build_graph_function(graph, calls)

        def compute(values: LeafValues) -> list[LibraryArray]:
            outs = run_graph(values)
            self._synchronize(*outs)
            return outs

        return compute

    def _build_graph_function(self, graph: Graph, calls: Sequence[NodeCall]) -> Compute:
        """Return the function that computes a graph: traced and compiled, or step by
        step.
        """
        step_by_step = super()._bind_computation(graph, calls)
        has_custom_op = any(
            registry.get(call.node.op).has_trait("custom") for call in calls
        )
        if self._trace is None or has_custom_op or not calls:
            return step_by_step
        guarded_nodes = [
            call.node for call in calls if registry.get(call.node.op).guard
        ]
        leaves = [n.id for n in graph.nodes() if registry.get(n.op).has_trait("leaf")]
        compiled = self._trace(partial(self._traced_outputs, graph, calls, leaves))

        def compute(values: LeafValues) -> list[LibraryArray]:
            raise_if_cancelled()
            outs, observations = compiled([values[i] for i in leaves])
            for node, observation in zip(guarded_nodes, observations, strict=True):
                self._check_guard(graph, node, observation)
            return list(outs)

        return compute

    def _traced_outputs(
        self,
        graph: Graph,
        calls: Sequence[NodeCall],
        leaves: Sequence[int],
        arrays: Sequence[LibraryArray],
    ) -> tuple[list[LibraryArray], list[LibraryArray]]:
        """Compute a graph's outputs, and the observations of its guards."""
        values = dict(zip(leaves, arrays, strict=True))
        observations = []
        for call in calls:
            arguments = [values[i] for i in call.inputs]
            guard, run = registry.get(call.node.op).guard, call.function
            if guard is not None:
                observations.append(
                    guard.summarize(self.xp, call.node.attrs, *arguments)
                )
                run = partial(guard.unchecked_reference, self.xp)
            values[call.node.id] = self._check_result(
                call, run(call.node.attrs, *arguments)
            )
        return [values[i] for i in graph.outputs], observations

    def _check_guard(self, graph: Graph, node: Node, observation: Any) -> None:
        """Raise the error of a node's guard if its observation calls for one."""
        guard = registry.get(node.op).guard
        if guard is not None:
            shapes = [graph.node(i).type.shape for i in node.inputs]
            numbers = [int(i) for i in np.asarray(self.copy_to_host(observation))]
            guard.check_summary(shapes, node.attrs, numbers)
