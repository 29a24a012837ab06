"""Compare gradients of every op with central differences in float64.

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

from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.smoke.random_graph_builder import RandomGraph
from tests.engines_under_test import Array, engine, named_feeds, single_op_graph
from tests.graphs.random_gradient_graph import GradientGraph, differentiate_graph
from tests.suite_tiers import Sampler

MAX_ELEMENTS = 3000
"""Maximum elements of a sample's operand: larger ones have the same shapes."""
CPU = engine(None)
NONDIFFERENTIABLE_OPS = {
    *("argmax", "argmin", "nonzero", "quantize_linear", "matmul_integer"),
    *("conv_integer", "stop_gradient"),
}
"""Ops with a VJP rule that differences cannot judge: integers come out, or the gradient
is not that of the function.
"""
PEAK_OPS = ("power_peaks", "welch_row_peaks", "welch_peaks")
"""Ops that return pairs of a bin and its power."""


def has_gradient(op: Op) -> bool:
    """Return whether the op has a VJP rule or a decomposition."""
    return op.vjp is not None or op.decomposition is not None


def as_float64_sample(sample: Sample) -> Sample:
    """Return the sample with floats as float64, of any value: whole ones would tie."""
    wide = (
        replace(operand, dtype=DType.F64, whole=False)
        if operand.dtype.is_float
        else operand
        for operand in sample.inputs
    )
    return replace(sample, inputs=tuple(wide))


def is_nonsmooth_sample(op: Op, sample: Sample) -> bool:
    """Return whether the function is not smooth on the sample or its gradient is not
    its derivative.
    """
    floats = [operand for operand in sample.inputs if operand.dtype.is_float]
    if op.name == "stop_gradient":
        return True
    if op.name == "round" or op.name in PEAK_OPS:  # halves, peaks that are equal
        return any(operand.low == operand.high for operand in floats)
    if sample.attrs.get("quantized_state"):
        return True
    if op.name == "cast":
        return sample.attrs["to"] is not DType.F64
    return op.name == "pow" and floats[0].low < 0  # by the exponent it is NaN


def differentiable_samples(op: Op) -> list[Sample]:
    """Return the samples that differ once their floats are float64."""
    samples: dict[str, Sample] = {}
    for sample in op.samples:
        floats = [operand for operand in sample.inputs if operand.dtype.is_float]
        small = all(np.prod(operand.shape) <= MAX_ELEMENTS for operand in sample.inputs)
        wild = any(max(abs(operand.low), abs(operand.high)) > 100 for operand in floats)
        tiny = any(
            0 < max(abs(operand.low), abs(operand.high)) < 1e-3 for operand in floats
        )
        if (
            floats
            and small
            and not wild
            and not tiny
            and not is_nonsmooth_sample(op, sample)
        ):
            wide_sample = as_float64_sample(sample)
            samples.setdefault(
                repr((wide_sample.inputs, wide_sample.attrs)), wide_sample
            )
    return list(samples.values())


class GradientCase:
    """An op on a sample, as a function of its float operands with derivatives."""

    def __init__(self, op: Op, sample: Sample, seed: int = 0) -> None:
        self.op, self.sample = op, sample
        rng = np.random.default_rng(seed)
        self.operands = {f"x{i}": a for i, a in enumerate(sample.draw(seed))}
        self.floats = [n for n, a in self.operands.items() if a.dtype.kind == "f"]
        graph, result = self.build_graph()
        self.plain_graph = graph
        self.is_float = result.dtype.is_float
        self.weights = rng.normal(size=result.shape)
        if op.name in PEAK_OPS:  # which bin it is does not move
            self.weights[..., ::2] = 0.0
        self.direction = {
            n: rng.normal(size=self.operands[n].shape) for n in self.floats
        }
        graph.set_outputs([result])

    def build_graph(self) -> tuple[Graph, Any]:
        graph = Graph(self.op.name)
        operands = [
            graph.input(n, a.shape, str(a.dtype.name)) for n, a in self.operands.items()
        ]
        return graph, graph.apply(self.op.name, *operands, **self.sample.attrs)

    @contextmanager
    def compiled_value(self) -> Iterator[Callable[..., float]]:
        """Yield a function of changed operands that returns sum(result * weights),
        compiled once.
        """
        with CPU.prepare(self.plain_graph) as run:

            def value(**changed_operands: Array) -> float:
                (out,) = run({**self.operands, **changed_operands})
                with np.errstate(invalid="ignore"):
                    return float((out * self.weights).sum())

            yield value

    def gradients(self) -> dict[str, Array]:
        """Return gradients by each float operand, in reverse mode."""
        graph, result = self.build_graph()
        operands = [graph.tensor(graph.named("input")[n].id) for n in self.floats]
        u = graph.input("u", self.weights.shape, "f64")
        graph.set_outputs(graph.gradients(result, operands, [u]))
        outs = CPU.run(graph, {**self.operands, "u": self.weights})
        return dict(zip(self.floats, outs, strict=True))

    def tangent(self) -> float:
        """Return sum(weights * J v), in forward mode."""
        graph, result = self.build_graph()
        operands = [graph.tensor(graph.named("input")[n].id) for n in self.floats]
        v = [graph.input(f"v{n}", self.operands[n].shape, "f64") for n in self.floats]
        graph.set_outputs(graph.tangents(result, operands, v))
        feeds = {**self.operands, **{f"v{n}": self.direction[n] for n in self.floats}}
        (out,) = CPU.run(graph, feeds)
        return float((out * self.weights).sum())


def derivative_mismatch(case: GradientCase) -> tuple[int, str]:
    """Return the number of operands checked by differences and a description of wrong
    derivatives.
    """
    with case.compiled_value() as value:
        return _compare_to_differences(value, case)


def _compare_to_differences(
    value: Callable[..., float], case: GradientCase
) -> tuple[int, str]:
    if not np.isfinite(value()):  # of a singular matrix, or a value that is none
        return 0, ""
    grads = case.gradients()
    mismatches: list[str] = []
    checked_count = 0
    for name in case.floats:
        x, v = case.operands[name], case.direction[name]
        if grads[name].shape != x.shape or grads[name].dtype != x.dtype:
            return 1, f"{name}: a gradient of {grads[name].shape} {grads[name].dtype}"
        got = float((grads[name] * v).sum())
        step = 1e-6
        # Richardson's: the error of a difference is of the fourth order.
        one_step, two_steps = (
            (value(**{name: x + h * v}) - value(**{name: x - h * v})) / (2 * h)
            for h in (step, 2 * step)
        )
        want = one_step + (one_step - two_steps) / 3
        if not np.isfinite(want):  # at the end of where it is defined
            continue
        checked_count += 1
        size = max(1.0, float(np.abs(grads[name] * v).sum()))
        if not abs(got - want) <= 2e-5 * size:
            mismatches.append(f"{name}: {got} for {want}")
    reverse = sum(float((grads[n] * case.direction[n]).sum()) for n in case.floats)
    forward = case.tangent()
    if not abs(forward - reverse) <= 1e-9 * max(1.0, abs(reverse)):
        mismatches.append(f"forward {forward}, reverse {reverse}")
    return checked_count, "; ".join(mismatches)


DIFFERENTIABLE_OPS = [op for op in registry if has_gradient(op)]


@pytest.mark.parametrize("op", DIFFERENTIABLE_OPS, ids=lambda op: op.name)
def test_gradients_agree_with_differences(op: Op, sampled: Sampler) -> None:
    failures, checked_count = {}, 0
    for sample in sampled(differentiable_samples(op), 3, quick=2):
        case = GradientCase(op, sample)
        if case.is_float:
            count, mismatch = derivative_mismatch(case)
            checked_count += count
            if mismatch:
                failures[f"{[d.shape for d in sample.inputs]} {dict(sample.attrs)}"] = (
                    mismatch
                )
    assert failures == {}
    assert (checked_count > 0) is (op.name not in NONDIFFERENTIABLE_OPS)


def smallest_gradient_case(op: Op) -> GradientGraph | None:
    """Return the gradients of the smallest float32 sample that has more than one
    element.
    """
    candidates = []
    for sample in op.samples:
        floats = [operand for operand in sample.inputs if operand.dtype.is_float]
        sizes = [int(np.prod(operand.shape)) for operand in sample.inputs]
        has_plain_floats = all(
            operand.dtype is DType.F32 and abs(operand.high) <= 100
            for operand in floats
        )
        if (
            floats
            and has_plain_floats
            and 1 < min(sizes)
            and sum(sizes) <= MAX_ELEMENTS
        ):
            candidates.append((sum(sizes), len(candidates), sample))
    if not candidates:
        return None
    arrays = min(candidates)[2].draw(0)
    case = RandomGraph(
        single_op_graph(op, min(candidates)[2], arrays), named_feeds(arrays), []
    )
    return differentiate_graph(case)


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.requires_wgpu
def test_adapter_gradients_agree_with_cpu(
    adapter: AdapterRequest, sampled: Sampler
) -> None:
    """An adapter's gradients are those of the CPU, as far as float32 allows."""
    cases = {
        op.name: case
        for op in DIFFERENTIABLE_OPS
        if (case := smallest_gradient_case(op)) is not None
    }
    assert len(cases) > 100
    mismatches = {}
    for name in sampled([*cases], 20, quick=10):
        case = cases[name]
        mismatches[name] = case.output_errors(
            engine(adapter).run(case.graph, case.feeds)
        )
    assert {name: mismatch for name, mismatch in mismatches.items() if mismatch} == {}
