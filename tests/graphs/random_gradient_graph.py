"""Random graphs with their gradients, and the error an engine may make in them.

The gradient of the sum of squares of a grown graph's float outputs, by its float inputs
and params. Nothing bounds a gradient beforehand, so the allowance is measured: the
graph is evaluated in float64 with every inexact result off by what its op may be, a few
times over, and what that changes is what an engine may be off by. Where a kink is near
that is much, and there an engine may be anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rlxweb.core.errors import GradientRefused
from rlxweb.engines.reference_comparison import compare_to_reference, rounding_errors
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Tolerance, registry
from rlxweb.smoke.random_graph_builder import RandomGraph

F32_EPSILON = 2.0**-23
NOISE_TRIALS = 6
NOISE_FACTOR = 4.0
"""Allowed error of an engine, as a multiple of the largest measured change."""


@dataclass(frozen=True)
class GradientGraph:
    """Graph whose outputs are gradients, with its feeds."""

    graph: Graph
    feeds: dict[str, Any]

    @cached_property
    def reference(self) -> list[Any]:
        return NoisyEvaluation(self).compute_outputs()

    @cached_property
    def f32_values(self) -> dict[int, Any]:
        """The value of each node in float32, without noise."""
        values: dict[int, Any] = {}
        with np.errstate(all="ignore"):
            for node in self.graph.nodes():
                values[node.id] = self.compute_node(node, values, is_f64=False)
        return values

    def compute_node(self, node: Node, values: Mapping[int, Any], is_f64: bool) -> Any:
        """Compute a node from the values of its inputs, in float64 or float32."""
        if node.op in ("input", "param"):
            value = np.asarray(self.feeds[node.name])
        else:
            attrs = dict(node.attrs)
            if is_f64 and attrs.get("to") is DType.F32:
                attrs["to"] = DType.F64
            evaluate = registry.get(node.op).reference
            value = evaluate(np, attrs, *(values[i] for i in node.inputs))
        if node.type.dtype.is_float:
            return np.asarray(value, np.float64 if is_f64 else np.float32)
        return np.asarray(value)

    @cached_property
    def allowances(self) -> list[Any]:
        """Allowed error of each element; infinite where a kink is near."""
        errors = [8 * values for values in rounding_errors(self.graph, self.feeds)]
        for seed in range(NOISE_TRIALS):
            noisy_outputs = NoisyEvaluation(
                self, np.random.default_rng(seed)
            ).compute_outputs()
            for index, (values, want) in enumerate(
                zip(noisy_outputs, self.reference, strict=True)
            ):
                with np.errstate(invalid="ignore"):
                    change = np.where(
                        values == want, 0.0, NOISE_FACTOR * np.abs(values - want)
                    )
                both_nan = np.isnan(values) & np.isnan(want)
                change = np.where(
                    both_nan, 0.0, np.where(np.isnan(change), np.inf, change)
                )
                errors[index] = np.fmax(errors[index], change)
        return errors

    @property
    def sharp_counts(self) -> tuple[int, int]:
        """Number of elements that must come within a hundredth of their array's size,
        and of all.
        """
        sharp = 0
        for want, allowance in zip(self.reference, self.allowances, strict=True):
            finite = np.abs(want[np.isfinite(want)])
            sharp += int((allowance <= 0.01 * finite.max(initial=1e-3)).sum())
        return sharp, sum(values.size for values in self.reference)

    def output_errors(self, outs: Sequence[Any]) -> list[str]:
        """Return a line for each wrong gradient."""
        errors = []
        triples = zip(outs, self.reference, self.allowances, strict=True)
        for index, (got, want, allowance) in enumerate(triples):
            finite_allowance = np.where(np.isinf(allowance), 0.0, allowance)
            got = np.where(np.isinf(allowance), want, got).astype(got.dtype)
            tolerance = Tolerance(rtol=4e-6, atol=4e-6, relative_to_peak=True)
            reason = compare_to_reference(
                got, want, DType.F32, tolerance, finite_allowance
            ).reason
            errors += [f"gradient {index}: {reason}"] if reason else []
        return errors

    def __repr__(self) -> str:
        return f"{self.graph}\nfeeds {sorted(self.feeds)}"


class NoisyEvaluation:
    """Evaluation of a graph in float64, each inexact float off by up to its op's
    tolerance.
    """

    def __init__(
        self, case: GradientGraph, rng: np.random.Generator | None = None
    ) -> None:
        self.case, self.rng = case, rng

    def compute_outputs(self) -> list[Any]:
        values: dict[int, Any] = {}
        with np.errstate(all="ignore"):
            for node in self.case.graph.nodes():
                value = self.case.compute_node(node, values, is_f64=True)
                if self.rng is not None and node.type.dtype.is_float:
                    value = self._add_noise(node, value, self.case.f32_values[node.id])
                values[node.id] = value
        return [np.asarray(values[node_id]) for node_id in self.case.graph.outputs]

    def _add_noise(self, node: Node, value: Any, f32_value: Any) -> Any:
        """Add noise to inexact values; exact ones stay, since ties that every engine
        has are not near kinks.
        """
        assert self.rng is not None
        is_exact = (value == f32_value) | ~np.isfinite(value)
        if is_exact.all():
            return value
        tolerance = registry.get(node.op).tolerance
        peak = 1.0
        if tolerance.relative_to_peak:
            peak = float(np.abs(value[np.isfinite(value)]).max(initial=0.0))
        size = (
            np.maximum(tolerance.rtol, F32_EPSILON) * np.abs(value)
            + tolerance.atol * peak
        )
        noisy = value + size * self.rng.uniform(-1, 1, value.shape)
        return np.where(is_exact, value, noisy)


def differentiate_graph(case: RandomGraph) -> GradientGraph | None:
    """Return the gradients of a random graph; None where it has none.

    An output of an op without a derivative is left out.
    """
    g = case.graph
    leaves = {**g.named("input"), **g.named("param")}
    float_leaves = [
        g.tensor(node.id) for node in leaves.values() if node.type.dtype.is_float
    ]
    squares = []
    for node_id in g.outputs:
        y = g.tensor(node_id)
        if not y.dtype.is_float or not y.shape.count(0) == 0:
            continue
        try:
            g.gradients(y, float_leaves)
        except GradientRefused:
            continue
        squares.append(g.sum(y * y))
    if not float_leaves or not squares:
        return None
    loss = sum(squares[1:], squares[0])
    g.set_outputs(g.gradients(loss, float_leaves))
    return GradientGraph(g, case.feeds)
