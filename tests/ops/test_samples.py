"""The samples themselves: an op whose samples miss a hard size is not tested.

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
from tests.ops.ways import names, plain

MANY_ROWS = 65_535


def sizes(op: Op) -> list[tuple[int, ...]]:
    return [one.shape for sample in op.samples for one in sample.inputs]


@pytest.mark.parametrize("name", names())
def test_samples_cover_the_hard_sizes(name: str) -> None:
    """Every op has samples of the hard sizes.

    They are nothing, one element, an odd length, and more rows than a grid has columns.
    """
    op = registry.get(name)
    every = sizes(op)
    missing = []
    if not any(0 in shape for shape in every):
        missing.append("an axis of 0")
    # A complex number in block layout is two elements, and so is a value with its gate.
    single = 2 if op.has("spectral") or name == "glu" else 1
    if not any(1 <= math.prod(shape) <= single for shape in every):
        missing.append("a single element")
    if not any(dim % 2 and dim > 1 for shape in every for dim in shape):
        missing.append("an odd length")
    rows = [math.prod(case.feeds["x0"].shape) for case in plain(name)]
    outs = [c.graph.node(c.graph.outputs[0]).type.numel for c in plain(name)]
    if max(rows + outs, default=0) <= MANY_ROWS:
        missing.append("more than 65,535 elements")
    assert missing == []


@pytest.mark.parametrize("name", names())
def test_samples_stay_small(name: str) -> None:
    """Samples are small: every engine runs them in every way, in a browser too."""
    for sample in registry.get(name).samples:
        assert sum(math.prod(one.shape) for one in sample.inputs) <= 600_000, sample


@pytest.mark.parametrize("name", names())
def test_samples_take_every_value_of_a_closed_attribute(name: str) -> None:
    """Samples take each allowed value, both truths of a flag and axes of both signs."""
    op = registry.get(name)
    for attr in op.attrs:
        given = [s.attrs.get(attr.name, attr.default) for s in op.samples]
        if attr.allowed:
            assert set(attr.allowed) <= set(given), attr.name
        if attr.kind == "bool":
            assert {True, False} <= set(given), attr.name
        if attr.name == "axis":
            assert min(given) < 0 <= max(given), "axes counted from both ends"


def test_some_sample_has_every_dtype() -> None:
    samples = [sample for name in names() for sample in registry.get(name).samples]
    assert {one.dtype for sample in samples for one in sample.inputs} == set(DType)


@pytest.mark.parametrize("name", names())
def test_drawn_values_can_be_told_apart(name: str) -> None:
    """A sample of equal numbers would hide a wrong index."""
    assert any(np.unique(case.feeds["x0"]).size > 1 for case in plain(name))


def test_labels_are_distinct() -> None:
    """A failure names one sample."""
    for name in names():
        labels = [case.label for case in plain(name)]
        assert len(set(labels)) == len(labels)


def test_sample_records_are_hashable_enough_to_compare() -> None:
    """No op has two equal samples: each tests something of its own."""
    for name in names():
        seen: list[Sample] = []
        for sample in registry.get(name).samples:
            assert sample not in seen, f"{name}: {sample} twice"
            seen.append(sample)
