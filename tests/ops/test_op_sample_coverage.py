"""Test that every op's samples cover the hard sizes, dtypes and attribute values.

Read by the agreement tests, the smoke test and the browser page alike, so a gap here is
a gap everywhere.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlxweb.ir.dtype import DType
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from tests.ops.op_cases import op_names, sample_cases

MANY_ROWS = 65_535


def sample_shapes(op: Op) -> list[tuple[int, ...]]:
    return [operand.shape for sample in op.samples for operand in sample.inputs]


@pytest.mark.parametrize("name", op_names())
def test_samples_cover_the_hard_sizes(name: str) -> None:
    """Every op has samples with an empty axis, one element, an odd length and many
    rows.

    They are nothing, one element, an odd length, and more rows than a grid has columns.
    """
    op = registry.get(name)
    shapes = sample_shapes(op)
    missing = []
    if not any(0 in shape for shape in shapes):
        missing.append("an axis of 0")
    # A complex number in block layout is two elements, and so is a value with its gate.
    max_single_size = 2 if op.has_trait("spectral") or name == "glu" else 1
    if not any(1 <= math.prod(shape) <= max_single_size for shape in shapes):
        missing.append("a single element")
    if not any(dim % 2 and dim > 1 for shape in shapes for dim in shape):
        missing.append("an odd length")
    rows = [math.prod(case.feeds["x0"].shape) for case in sample_cases(name)]
    outs = [c.graph.node(c.graph.outputs[0]).type.numel for c in sample_cases(name)]
    if max(rows + outs, default=0) <= MANY_ROWS:
        missing.append("more than 65,535 elements")
    assert missing == []


@pytest.mark.parametrize("name", op_names())
def test_samples_stay_small(name: str) -> None:
    """Samples are small: every engine runs them in every way, in a browser too."""
    for sample in registry.get(name).samples:
        assert sum(math.prod(operand.shape) for operand in sample.inputs) <= 600_000, (
            sample
        )


@pytest.mark.parametrize("name", op_names())
def test_samples_cover_every_allowed_attribute_value(name: str) -> None:
    """Samples take each allowed value, both truths of a flag and axes of both signs."""
    op = registry.get(name)
    for attr in op.attrs:
        values = [s.attrs.get(attr.name, attr.default) for s in op.samples]
        if attr.allowed:
            assert set(attr.allowed) <= set(values), attr.name
        if attr.kind == "bool":
            assert {True, False} <= set(values), attr.name
        if attr.name == "axis":
            assert min(values) < 0 <= max(values), "axes counted from both ends"


def test_samples_cover_every_dtype() -> None:
    samples = [sample for name in op_names() for sample in registry.get(name).samples]
    assert {operand.dtype for sample in samples for operand in sample.inputs} == set(
        DType
    )


@pytest.mark.parametrize("name", op_names())
def test_drawn_values_differ(name: str) -> None:
    """A sample of equal numbers would hide a wrong index."""
    assert any(np.unique(case.feeds["x0"]).size > 1 for case in sample_cases(name))


def test_labels_are_distinct() -> None:
    """A failure names one sample."""
    for name in op_names():
        labels = [case.label for case in sample_cases(name)]
        assert len(set(labels)) == len(labels)


def test_samples_of_an_op_are_distinct() -> None:
    """No op has two equal samples: each tests something of its own."""
    for name in op_names():
        previous_samples: list[Sample] = []
        for sample in registry.get(name).samples:
            assert sample not in previous_samples, f"{name}: {sample} twice"
            previous_samples.append(sample)
