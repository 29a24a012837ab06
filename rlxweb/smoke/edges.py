"""What engines do at the edges of arithmetic: questions, and answers in words.

NaN, infinities, x / 0, integers that overflow and casts out of range are promised to be
NumPy's on every engine. Denormal numbers, the sign of zero, and how an odd value
spreads through a transform are not: whatever an engine answers there is right, and
noted. The manual's table is made of the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlxweb.backends.agreement import Agreement
from rlxweb.backends.evaluate import evaluate
from rlxweb.backends.protocol import Array
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.smoke.case import Case, Trial
from rlxweb.smoke.special import alike

Build = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Edge:
    """One question: a small graph, and the values that are put to it.

    asked     the expression over x and y, as the table shows it
    build     (graph, *operands) → the result
    given     values of each operand
    dtypes    their element types
    promised  is NumPy's answer promised on every engine?
    """

    topic: str
    asked: str
    build: Build
    given: tuple[Sequence[float], ...]
    dtypes: tuple[str, ...]
    promised: bool = True

    def trial(self) -> Trial:
        """Its inputs are x and y, so that no compiler may fold them."""
        graph = Graph(f"{self.topic}: {self.asked}")
        given = zip("xy", self.given, self.dtypes, strict=False)
        feeds = {k: np.array(values, as_dtype(t).numpy) for k, values, t in given}
        operands = [graph.input(k, a.shape, a.dtype) for k, a in feeds.items()]
        graph.set_outputs([self.build(graph, *operands)])
        dtype = graph.node(graph.outputs[0]).type.dtype

        def judge(outs: Sequence[Any]) -> Agreement:
            want = np.asarray(evaluate(graph, feeds)[0])
            found = alike(outs[0], want, dtype) if self.promised else Agreement()
            return replace(found, answer=in_words(outs[0]))

        return Trial(graph, feeds, judge)

    @property
    def values(self) -> str:
        """What is put to it: "x = nan, 1; y = 1, nan"."""
        given = zip("xy", self.given, strict=False)
        return "; ".join(f"{k} = {in_words(np.array(v, float))}" for k, v in given)


def edge_cases(edges: Sequence[Edge]) -> Iterator[Case]:
    """A case a question, named by its topic and its number there."""
    counted: dict[str, int] = {}
    for edge in edges:
        at = counted[edge.topic] = counted.get(edge.topic, -1) + 1
        shapes = [(len(values),) for values in edge.given]
        yield Case(
            f"edges/{edge.topic.replace(' ', '-')}/{at}",
            "edges",
            "",
            edge.trial,
            tuple(zip(shapes, edge.dtypes, strict=True)),
            note=f"{edge.asked}: {edge.values}",
        )


def in_words(array: Array) -> str:
    """Its values in a row, as the table shows them: "nan, -inf, -0, 1.5"."""
    return ", ".join(_word(value) for value in np.asarray(array).reshape(-1))


def _word(value: Any) -> str:
    if isinstance(value, np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.integer):
        return str(int(value))
    if value == 0:
        return "-0" if np.signbit(value) else "0"
    exact = float(value)
    # what a float holds of a whole number is worth every digit
    whole = exact.is_integer() and abs(exact) < 1e10
    return f"{int(exact)}" if whole else f"{exact:.4g}"
