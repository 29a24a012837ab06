"""Random graphs with their gradients, and how near an engine must come to them.

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

from rlxweb.backends.agreement import compare, rounding
from rlxweb.errors import GradientRefused
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph, Node
from rlxweb.ir.op import Tolerance, registry
from rlxweb.smoke.grown import GrownGraph

ROUNDING = 2.0**-23
TIMES = 6
LARGE = 4.0
"""By how much an engine may be off in parts of the largest measured change."""


@dataclass(frozen=True)
class Differentiated:
    """A graph whose outputs are gradients, and what to feed it."""

    graph: Graph
    feeds: dict[str, Any]

    @cached_property
    def truth(self) -> list[Any]:
        return Noisy(self).outputs()

    @cached_property
    def single(self) -> dict[int, Any]:
        """The value of each node in float32, without noise."""
        values: dict[int, Any] = {}
        with np.errstate(all="ignore"):
            for node in self.graph.nodes():
                values[node.id] = self.value(node, values, wide=False)
        return values

    def value(self, node: Node, values: Mapping[int, Any], wide: bool) -> Any:
        """Compute a node from the values of its inputs, in float64 or float32."""
        if node.op in ("input", "param"):
            value = np.asarray(self.feeds[node.name])
        else:
            attrs = dict(node.attrs)
            if wide and attrs.get("to") is DType.F32:
                attrs["to"] = DType.F64
            reference = registry.get(node.op).reference
            value = reference(np, attrs, *(values[i] for i in node.inputs))
        if node.type.dtype.is_float:
            return np.asarray(value, np.float64 if wide else np.float32)
        return np.asarray(value)

    @cached_property
    def allowed(self) -> list[Any]:
        """What each element may be off by; infinite where a kink is near."""
        off = [8 * one for one in rounding(self.graph, self.feeds)]
        for seed in range(TIMES):
            moved = Noisy(self, np.random.default_rng(seed)).outputs()
            for at, (one, want) in enumerate(zip(moved, self.truth, strict=True)):
                with np.errstate(invalid="ignore"):
                    change = np.where(one == want, 0.0, LARGE * np.abs(one - want))
                both = np.isnan(one) & np.isnan(want)
                change = np.where(both, 0.0, np.where(np.isnan(change), np.inf, change))
                off[at] = np.fmax(off[at], change)
        return off

    @property
    def judged(self) -> tuple[int, int]:
        """Elements that are held to a hundredth of their array's size, and all."""
        sharp = 0
        for want, off in zip(self.truth, self.allowed, strict=True):
            finite = np.abs(want[np.isfinite(want)])
            sharp += int((off <= 0.01 * finite.max(initial=1e-3)).sum())
        return sharp, sum(one.size for one in self.truth)

    def misses(self, outs: Sequence[Any]) -> list[str]:
        """What is wrong with the gradients, a line for each that is."""
        found = []
        every = zip(outs, self.truth, self.allowed, strict=True)
        for at, (got, want, off) in enumerate(every):
            near = np.where(np.isinf(off), 0.0, off)
            got = np.where(np.isinf(off), want, got).astype(got.dtype)
            own = Tolerance(rtol=4e-6, atol=4e-6, relative_to_peak=True)
            why = compare(got, want, DType.F32, own, near).why
            found += [f"gradient {at}: {why}"] if why else []
        return found

    def __repr__(self) -> str:
        return f"{self.graph}\nfeeds {sorted(self.feeds)}"


class Noisy:
    """A graph in float64, each inexact float off by up to its op's tolerance."""

    def __init__(
        self, case: Differentiated, rng: np.random.Generator | None = None
    ) -> None:
        self.case, self.rng = case, rng

    def outputs(self) -> list[Any]:
        values: dict[int, Any] = {}
        with np.errstate(all="ignore"):
            for node in self.case.graph.nodes():
                value = self.case.value(node, values, wide=True)
                if self.rng is not None and node.type.dtype.is_float:
                    value = self._moved(node, value, self.case.single[node.id])
                values[node.id] = value
        return [np.asarray(values[at]) for at in self.case.graph.outputs]

    def _moved(self, node: Node, value: Any, single: Any) -> Any:
        """Exact ones stay: ties that every engine has are no kinks that are near."""
        assert self.rng is not None
        stays = (value == single) | ~np.isfinite(value)
        if stays.all():
            return value
        own = registry.get(node.op).tolerance
        peak = 1.0
        if own.relative_to_peak:
            peak = float(np.abs(value[np.isfinite(value)]).max(initial=0.0))
        size = np.maximum(own.rtol, ROUNDING) * np.abs(value) + own.atol * peak
        moved = value + size * self.rng.uniform(-1, 1, value.shape)
        return np.where(stays, value, moved)


def differentiated(case: GrownGraph) -> Differentiated | None:
    """The gradients of a grown graph; None where it has none.

    An output of an op without a derivative is left out.
    """
    g = case.graph
    leaves = {**g.named("input"), **g.named("param")}
    by = [g.tensor(node.id) for node in leaves.values() if node.type.dtype.is_float]
    squares = []
    for at in g.outputs:
        y = g.tensor(at)
        if not y.dtype.is_float or not y.shape.count(0) == 0:
            continue
        try:
            g.gradients(y, by)
        except GradientRefused:
            continue
        squares.append(g.sum(y * y))
    if not by or not squares:
        return None
    loss = sum(squares[1:], squares[0])
    g.set_outputs(g.gradients(loss, by))
    return Differentiated(g, case.feeds)
