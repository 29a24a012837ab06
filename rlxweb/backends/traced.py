"""The array engine on a library that compiles: a whole plan becomes one function.

Such a library follows a computation once, on arrays without values, and then runs what
it made of it. What looks at values (an index that may be outside its table) is looked
at within, brought back with the results and judged after them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlxweb.backends.array import ArrayBackend, Compute
from rlxweb.backends.array_calls import Call
from rlxweb.backends.array_residents import OwnArray
from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.backends.timed import Timed
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import registry
from rlxweb.stopping import check_stopped

Leaves = dict[int, OwnArray]


class TracedArrayBackend(ArrayBackend):
    """See `ArrayBackend`.

    trace   a function of a list of arrays → the same, compiled; None: nothing is
    settle  what is done with results before they are anybody's, on any thread
    Ops of a caller's own may look at values: a graph that has one runs op by op.
    """

    def __init__(
        self,
        *of_arrays: Any,
        trace: Callable[..., Any] | None,
        settle: Callable[..., None] = lambda *results: None,
        **how: Any,
    ) -> None:
        self._trace, self._settle = trace, settle
        self.skips = trace is not None
        super().__init__(*of_arrays, **how)

    async def timed(self, program: Program, feeds: Mapping[str, Array]) -> Timed:
        """Of a plan that became one function there are no steps to be timed."""
        if self._trace is None:
            return await super().timed(program, feeds)
        return await Backend.timed(self, program, feeds)

    def _computation(self, graph: Graph, calls: Sequence[Call]) -> Compute:
        made = self._way(graph, calls)

        def compute(values: Leaves) -> list[OwnArray]:
            outs = made(values)
            self._settle(*outs)
            return outs

        return compute

    def _way(self, graph: Graph, calls: Sequence[Call]) -> Compute:
        step_by_step = super()._computation(graph, calls)
        strangers = any(registry.get(call.node.op).has("custom") for call in calls)
        if self._trace is None or strangers or not calls:
            return step_by_step
        guarded = [call.node for call in calls if registry.get(call.node.op).guard]
        leaves = [n.id for n in graph.nodes() if registry.get(n.op).has("leaf")]
        compiled = self._trace(partial(self._whole, graph, calls, leaves))

        def compute(values: Leaves) -> list[OwnArray]:
            check_stopped()
            outs, seen = compiled([values[i] for i in leaves])
            for node, found in zip(guarded, seen, strict=True):
                self._judge(graph, node, found)
            return list(outs)

        return compute

    def _whole(
        self,
        graph: Graph,
        calls: Sequence[Call],
        leaves: Sequence[int],
        arrays: Sequence[OwnArray],
    ) -> tuple[list[OwnArray], list[OwnArray]]:
        """The outputs, and what the guards saw."""
        values = dict(zip(leaves, arrays, strict=True))
        seen = []
        for call in calls:
            given = [values[i] for i in call.inputs]
            guard, run = registry.get(call.node.op).guard, call.function
            if guard is not None:
                seen.append(guard.look(self._xp, call.node.attrs, *given))
                run = partial(guard.then, self._xp)
            values[call.node.id] = self._checked(call, run(call.node.attrs, *given))
        return [values[i] for i in graph.outputs], seen

    def _judge(self, graph: Graph, node: Node, found: Any) -> None:
        guard = registry.get(node.op).guard
        if guard is not None:
            shapes = [graph.node(i).type.shape for i in node.inputs]
            numbers = [int(i) for i in np.asarray(self._to_host(found))]
            guard.judge(shapes, node.attrs, numbers)
