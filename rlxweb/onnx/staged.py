"""A model whose shapes depend on what it computes, run in stages.

How many boxes are left, or elements are not zero, decides the shapes of what comes
after. Up to there the model is a graph: it is run, what it gives is known from then on,
and the conversion goes on. A stage hands on what later ones turned out to need, so that
nothing is computed twice once that is known. What was converted and compiled is kept by
the values that decided it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlxweb.compile.intervals import Intervals
from rlxweb.errors import Unsupported
from rlxweb.forked import ForkLock
from rlxweb.ir.bounds import Interval, whole
from rlxweb.ir.dtype import DType
from rlxweb.onnx.converters import NeedsValues
from rlxweb.onnx.draft import Draft, given_as
from rlxweb.onnx.imported import (
    Computed,
    Imported,
    Undecided,
    foreign_inputs,
    large_ones,
    placed,
    undecided,
    values_of,
    walked,
)
from rlxweb.onnx.records import ModelRecord
from rlxweb.onnx.signature import Binding
from rlxweb.runtime.compiled import CompiledGraph

Array = npt.NDArray[Any]
On = Callable[[Imported], Awaitable[CompiledGraph]]
"""A part → it compiled where the run was asked for, its params there."""

MOST_STAGES = 256
"""Values that are computed on the way, at most."""
MOST_KEPT = 32
"""Conversions that are kept, each up to where it asks or to its end."""

_ASKED = {dtype: whole(dtype) for dtype in (DType.I32, DType.U32, DType.I64)}
"""The types of which it is asked how far values lie."""


class Part(NamedTuple):
    """A graph of some nodes, all it computes, and how far integers it gives lie."""

    made: Imported
    own: set[int]
    reached: dict[int, Interval]


@dataclass
class Walked:
    """A conversion, as far as it came.

    asks     the node whose values decide how it goes on; None: it came to its end
    outputs  of the model, by name: known, or where among the targets
    targets  the nodes that are computed
    parts    their graphs, by what else they give and what is there
    """

    draft: Draft
    asks: int | None
    outputs: dict[str, Any]
    targets: tuple[int, ...]
    parts: dict[Any, Part] = field(default_factory=dict)

    def part(
        self, more: frozenset[int], there: dict[int, Any], reach: dict[int, Interval]
    ) -> tuple[Imported, set[int], tuple[int, ...]]:
        """The graph of the targets, the nodes that it computes, and those it gives.

        reach   how far integers that are there lie; it learns of those that are given
        """
        rest = sorted(more - {*self.targets, *there})
        key = tuple(rest), tuple(sorted(there)), tuple(sorted(reach.items()))
        asked = (*self.targets, *rest)
        if key not in self.parts:
            graph, params, own = self.draft.part(asked, there, reach)
            outputs = self.outputs or {
                given_as(at): Computed(k) for k, at in enumerate(asked)
            }
            every, reached = Intervals(graph, {}, _ASKED).of, {}
            for at, out in zip(asked, graph.outputs, strict=True):
                dtype = graph.node(out).type.dtype
                if dtype.is_integer and every[out] != whole(dtype):
                    reached[at] = every[out]
            self.parts[key] = Part(Imported(graph, params, outputs), own, reached)
        made, own, reached = self.parts[key]
        reach.update(reached)
        return made, own, asked


class Stages:
    """A model for one binding of its inputs, run in stages. Threads may share it."""

    def __init__(self, model: ModelRecord, binding: Binding, doing: str) -> None:
        self._model, self._doing = model, doing
        self._decided = set(foreign_inputs(binding.arrays, doing))
        self._made: dict[Any, Walked] = {}
        self._later: dict[int, frozenset[int]] = {}
        self._turn = ForkLock()

    async def run(self, binding: Binding, keep: Any, on: On) -> dict[str, Any]:
        """The outputs by name.

        Errors   those of a conversion and of a run; Unsupported where there is no end
        of the values that decide.
        """
        answers: dict[int, Array] = {}
        there: dict[int, Any] = {}
        ran: dict[int, int] = {}
        reach: dict[int, Interval] = {}
        for _ in range(MOST_STAGES):
            with self._turn:
                now = self._walked(binding, answers)
                if now is None:  # an input decides, too: all begins anew
                    answers, there, ran, reach = {}, {}, {}, {}
                    now = self._walked(binding, answers)
                assert now is not None
                more = self._later.get(len(answers), frozenset())
                more = frozenset() if now.asks is None else more
                made, own, given = now.part(self._known(now, more), there, reach)
                self._learn(now, own, ran)
            found: list[Any] = []
            if made.graph.outputs:
                compiled = await on(made)
                feeds = {n: _fed(n, binding, there) for n in made.inputs}
                stays = made.staying(keep) if now.asks is None else False
                found = await compiled.computed(feeds, keep=stays)
            if now.asks is None:
                results: dict[str, Any] = made.results(found)
                return results
            there.update(zip(given, found, strict=True))
            ran.update(dict.fromkeys(own, len(answers)))
            answers[now.asks] = np.asarray(there[now.asks])
        raise Unsupported(
            self._doing,
            f"more than {MOST_STAGES} of its values decide how it goes on",
            "each is a stage of its own",
        )

    def _walked(self, binding: Binding, answers: dict[int, Array]) -> Walked | None:
        """The conversion with what is known so far; None: an input's values decide."""
        inputs = ((n, values_of(binding.leaves[n])) for n in sorted(self._decided))
        known = ((at, values_of(a)) for at, a in sorted(answers.items()))
        key = tuple(inputs), tuple(known)
        if key in self._made:
            self._made[key] = self._made.pop(key)
            return self._made[key]
        g = Draft(self._model.graph.name or "model", answers)
        try:
            outs = walked(self._model, binding.arrays, self._decided, self._doing, g)
        except NeedsValues as wanted:
            if not large_ones(wanted, binding.arrays, self._decided):
                self._decided |= wanted.names
                if not answers:
                    return self._walked(binding, answers)
                return None
            error = undecided(wanted, binding.arrays, self._decided, self._doing)
            if not isinstance(error, Undecided):
                raise error from None
            made = Walked(g, wanted.tensor.id, {}, (wanted.tensor.id,))
        else:
            computed, outputs = placed(self._model, g, outs)
            made = Walked(g, None, outputs, tuple(t.id for t in computed))
        self._made[key] = made
        if len(self._made) > MOST_KEPT:  # let go of, not closed: somebody may run it
            self._made.pop(next(iter(self._made)))
        return made

    @staticmethod
    def _known(now: Walked, more: frozenset[int]) -> frozenset[int]:
        """Of nodes that later stages wanted those that this draft has, too."""
        count = len(now.draft.nodes())
        return frozenset(at for at in more if at < count and now.draft.is_computed(at))

    def _learn(self, now: Walked, own: set[int], ran: dict[int, int]) -> None:
        """What is computed again is handed on from the next run on."""
        again = own & ran.keys()
        edges = set(now.targets) & again
        for at in own - again:
            edges.update(i for i in now.draft.node(at).inputs if i in again)
        for at in edges:
            self._later[ran[at]] = self._later.get(ran[at], frozenset()) | {at}

    @property
    def parts(self) -> Iterator[Imported]:
        """All graphs that were made."""
        for one in list(self._made.values()):
            for part in list(one.parts.values()):
                yield part.made


def _fed(name: str, binding: Binding, there: dict[int, Any]) -> Any:
    if name in binding.leaves:
        return binding.leaves[name]
    return there[next(at for at in there if given_as(at) == name)]
