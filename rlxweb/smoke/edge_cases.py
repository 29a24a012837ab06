"""Arithmetic edge cases: NaN, infinities, overflow, division by zero, denormal numbers.

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

from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.protocol import Array
from rlxweb.engines.reference_comparison import ComparisonResult
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.graph import Graph
from rlxweb.ir.tensor import Tensor
from rlxweb.smoke.case import PreparedCase, SmokeCase
from rlxweb.smoke.special_value_cases import compare_to_numpy

Build = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class EdgeCase:
    """One edge case: a small graph and the operand values it is evaluated on.

    expression  the expression over x and y, as the table shows it
    build     (graph, *operands) → the result
    operand_values  values of each operand
    dtypes    their element types
    is_guaranteed  is NumPy's answer promised on every engine?
    """

    topic: str
    expression: str
    build: Build
    operand_values: tuple[Sequence[float], ...]
    dtypes: tuple[str, ...]
    is_guaranteed: bool = True

    def prepare(self) -> PreparedCase:
        """Prepare the graph; its operands are inputs, so that no compiler can fold
        them.
        """
        graph = Graph(f"{self.topic}: {self.expression}")
        named_operands = zip("xy", self.operand_values, self.dtypes, strict=False)
        feeds = {
            k: np.array(values, as_dtype(dtype_name).numpy)
            for k, values, dtype_name in named_operands
        }
        operands = [
            graph.input(k, array.shape, array.dtype) for k, array in feeds.items()
        ]
        graph.set_outputs([self.build(graph, *operands)])
        dtype = graph.node(graph.outputs[0]).type.dtype

        def judge(outputs: Sequence[Any]) -> ComparisonResult:
            expected = np.asarray(evaluate(graph, feeds)[0])
            comparison = (
                compare_to_numpy(outputs[0], expected, dtype)
                if self.is_guaranteed
                else ComparisonResult()
            )
            return replace(comparison, answer=format_values(outputs[0]))

        return PreparedCase(graph, feeds, judge)

    @property
    def values_text(self) -> str:
        """Operand values as text: "x = nan, 1; y = 1, nan"."""
        named_values = zip("xy", self.operand_values, strict=False)
        return "; ".join(
            f"{k} = {format_values(np.array(values, float))}"
            for k, values in named_values
        )


def edge_cases(edges: Sequence[EdgeCase]) -> Iterator[SmokeCase]:
    """Yield a smoke test case per edge case, named by topic and number."""
    last_indices: dict[str, int] = {}
    for edge in edges:
        index = last_indices[edge.topic] = last_indices.get(edge.topic, -1) + 1
        shapes = [(len(values),) for values in edge.operand_values]
        yield SmokeCase(
            f"edges/{edge.topic.replace(' ', '-')}/{index}",
            "edges",
            "",
            edge.prepare,
            tuple(zip(shapes, edge.dtypes, strict=True)),
            note=f"{edge.expression}: {edge.values_text}",
        )


def format_values(array: Array) -> str:
    """Format an array's values as the table shows them: "nan, -inf, -0, 1.5"."""
    return ", ".join(_format_value(value) for value in np.asarray(array).reshape(-1))


def _format_value(value: Any) -> str:
    """Format one value of an array."""
    if isinstance(value, np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.integer):
        return str(int(value))
    if value == 0:
        return "-0" if np.signbit(value) else "0"
    exact = float(value)
    # what a float holds of a whole number is worth every digit
    is_integer = exact.is_integer() and abs(exact) < 1e10
    return f"{int(exact)}" if is_integer else f"{exact:.4g}"
