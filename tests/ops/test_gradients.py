"""Gradients of every op against central differences, in float64.

The gradient of sum(result * weights) along a random direction must be what the
function itself does there, for every sample of an op whose operands are floats, and the
forward mode must be the transpose of the reverse mode: (J v) · u = v · (Jᵀ u). A GPU
must find the same in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.lowering import parts_of
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.smoke.grown import GrownGraph
from tests.agreement import Array, engine, feeds_of, one_op
from tests.graphs.differentiated import Differentiated, differentiated
from tests.tiers import Sampler

MOST = 3000
"""Elements of a sample's operand: larger ones are of the same shapes."""
CPU = engine(None)
UNJUDGED = {
    *("argmax", "argmin", "nonzero", "quantize_linear", "matmul_integer"),
    *("conv_integer", "stop_gradient"),
}
"""Ops that say how their gradient is taken back, for which differences say nothing:
integers come out, or the gradient is not that of the function.
"""
PEAKS = ("power_peaks", "welch_row_peaks", "welch_peaks")
"""Pairs of a bin and its power."""


def is_smooth(op: Op) -> bool:
    """Does it say how its gradient is taken back?"""
    return op.vjp is not None or parts_of(op.lower) is not None


def in_double(sample: Sample) -> Sample:
    """The sample with floats as float64, of any value: whole ones would tie."""
    wide = (
        replace(one, dtype=DType.F64, whole=False) if one.dtype.is_float else one
        for one in sample.inputs
    )
    return replace(sample, inputs=tuple(wide))


def is_where_it_steps(op: Op, sample: Sample) -> bool:
    """Is the function not smooth there, or has it more of a derivative than its own?"""
    floats = [one for one in sample.inputs if one.dtype.is_float]
    if op.name == "stop_gradient":
        return True
    if op.name == "round" or op.name in PEAKS:  # halves, peaks that are equal
        return any(one.low == one.high for one in floats)
    if sample.attrs.get("quantized_state"):
        return True
    if op.name == "cast":
        return sample.attrs["to"] is not DType.F64
    return op.name == "pow" and floats[0].low < 0  # by the exponent it is NaN


def cases(op: Op) -> list[Sample]:
    """The samples that differ once their floats are float64."""
    found: dict[str, Sample] = {}
    for sample in op.samples:
        floats = [one for one in sample.inputs if one.dtype.is_float]
        small = all(np.prod(one.shape) <= MOST for one in sample.inputs)
        wild = any(max(abs(one.low), abs(one.high)) > 100 for one in floats)
        tiny = any(0 < max(abs(one.low), abs(one.high)) < 1e-3 for one in floats)
        if (
            floats
            and small
            and not wild
            and not tiny
            and not is_where_it_steps(op, sample)
        ):
            made = in_double(sample)
            found.setdefault(repr((made.inputs, made.attrs)), made)
    return list(found.values())


class Case:
    """An op on a sample: its function of the float operands, and their derivatives."""

    def __init__(self, op: Op, sample: Sample, seed: int = 0) -> None:
        self.op, self.sample = op, sample
        rng = np.random.default_rng(seed)
        self.given = {f"x{i}": a for i, a in enumerate(sample.draw(seed))}
        self.floats = [n for n, a in self.given.items() if a.dtype.kind == "f"]
        graph, made = self.graph()
        self.plain = graph
        self.is_float = made.dtype.is_float
        self.weights = rng.normal(size=made.shape)
        if op.name in PEAKS:  # which bin it is does not move
            self.weights[..., ::2] = 0.0
        self.along = {n: rng.normal(size=self.given[n].shape) for n in self.floats}
        graph.set_outputs([made])

    def graph(self) -> tuple[Graph, Any]:
        graph = Graph(self.op.name)
        given = [
            graph.input(n, a.shape, str(a.dtype.name)) for n, a in self.given.items()
        ]
        return graph, graph.apply(self.op.name, *given, **self.sample.attrs)

    @contextmanager
    def value(self) -> Iterator[Callable[..., float]]:
        """sum(result * weights) with some operands elsewhere, compiled once."""
        with CPU.prepared(self.plain) as run:

            def value(**moved: Array) -> float:
                (out,) = run({**self.given, **moved})
                with np.errstate(invalid="ignore"):
                    return float((out * self.weights).sum())

            yield value

    def gradients(self) -> dict[str, Array]:
        """Gradients by each float operand, in reverse mode."""
        graph, made = self.graph()
        by = [graph.tensor(graph.named("input")[n].id) for n in self.floats]
        u = graph.input("u", self.weights.shape, "f64")
        graph.set_outputs(graph.gradients(made, by, [u]))
        outs = CPU.run(graph, {**self.given, "u": self.weights})
        return dict(zip(self.floats, outs, strict=True))

    def tangent(self) -> float:
        """sum(weights * J v), in forward mode."""
        graph, made = self.graph()
        by = [graph.tensor(graph.named("input")[n].id) for n in self.floats]
        v = [graph.input(f"v{n}", self.given[n].shape, "f64") for n in self.floats]
        graph.set_outputs(graph.tangents(made, by, v))
        feeds = {**self.given, **{f"v{n}": self.along[n] for n in self.floats}}
        (out,) = CPU.run(graph, feeds)
        return float((out * self.weights).sum())


def wrong_derivatives(case: Case) -> tuple[int, str]:
    """By how many operands a case was judged, by differences of its value, and what is
    wrong with its derivatives.
    """
    with case.value() as value:
        return _wrong_by(value, case)


def _wrong_by(value: Callable[..., float], case: Case) -> tuple[int, str]:
    if not np.isfinite(value()):  # of a singular matrix, or a value that is none
        return 0, ""
    grads = case.gradients()
    said: list[str] = []
    judged = 0
    for name in case.floats:
        x, v = case.given[name], case.along[name]
        if grads[name].shape != x.shape or grads[name].dtype != x.dtype:
            return 1, f"{name}: a gradient of {grads[name].shape} {grads[name].dtype}"
        got = float((grads[name] * v).sum())
        step = 1e-6
        # Richardson's: the error of a difference is of the fourth order.
        near, far = (
            (value(**{name: x + h * v}) - value(**{name: x - h * v})) / (2 * h)
            for h in (step, 2 * step)
        )
        want = near + (near - far) / 3
        if not np.isfinite(want):  # at the end of where it is defined
            continue
        judged += 1
        size = max(1.0, float(np.abs(grads[name] * v).sum()))
        if not abs(got - want) <= 2e-5 * size:
            said.append(f"{name}: {got} for {want}")
    both = sum(float((grads[n] * case.along[n]).sum()) for n in case.floats)
    pushed = case.tangent()
    if not abs(pushed - both) <= 1e-9 * max(1.0, abs(both)):
        said.append(f"forward {pushed}, reverse {both}")
    return judged, "; ".join(said)


EVERY = [op for op in registry if is_smooth(op)]


@pytest.mark.parametrize("op", EVERY, ids=lambda op: op.name)
def test_gradients_are_what_the_function_does(op: Op, sampled: Sampler) -> None:
    said, judged = {}, 0
    for sample in sampled(cases(op), 3, quick=2):
        case = Case(op, sample)
        if case.is_float:
            count, wrong = wrong_derivatives(case)
            judged += count
            if wrong:
                said[f"{[d.shape for d in sample.inputs]} {dict(sample.attrs)}"] = wrong
    assert said == {}
    assert (judged > 0) is (op.name not in UNJUDGED)


def small_case(op: Op) -> Differentiated | None:
    """The gradients of the smallest float32 sample that has more than one element."""
    found = []
    for sample in op.samples:
        floats = [one for one in sample.inputs if one.dtype.is_float]
        sizes = [int(np.prod(one.shape)) for one in sample.inputs]
        plain = all(one.dtype is DType.F32 and abs(one.high) <= 100 for one in floats)
        if floats and plain and 1 < min(sizes) and sum(sizes) <= MOST:
            found.append((sum(sizes), len(found), sample))
    if not found:
        return None
    arrays = min(found)[2].draw(0)
    case = GrownGraph(one_op(op, min(found)[2], arrays), feeds_of(arrays), [])
    return differentiated(case)


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.requires_wgpu
def test_gradients_are_the_same_on_an_adapter(adapter: Want, sampled: Sampler) -> None:
    """An adapter's gradients are those of the CPU, as far as float32 lets them."""
    cases = {op.name: case for op in EVERY if (case := small_case(op)) is not None}
    assert len(cases) > 100
    wrong = {}
    for name in sampled([*cases], 20, quick=10):
        case = cases[name]
        wrong[name] = case.misses(engine(adapter).run(case.graph, case.feeds))
    assert {name: said for name, said in wrong.items() if said} == {}
