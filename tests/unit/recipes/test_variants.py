"""The table of faster alternatives: sound rows, which answer for every sample."""

from __future__ import annotations

import pytest

from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.limits import Limits, shrunk
from rlxweb.recipes.variants import VARIANTS, Hardware, variants_of
from tests.agreement import one_op


def test_rows_have_distinct_names_and_real_ops() -> None:
    """A row for an op that does not exist would never be taken and never be missed."""
    names = [row.name for row in VARIANTS]
    assert len(set(names)) == len(names)
    assert all(row.op in registry for row in VARIANTS)


def test_variants_of_keeps_the_order_of_the_table() -> None:
    """The first row that fits is taken, so order is meaning."""
    for op in {row.op for row in VARIANTS}:
        assert list(variants_of(op)) == [row for row in VARIANTS if row.op == op]
    assert variants_of("no such op") == ()


@pytest.mark.parametrize("limits", [Limits(), shrunk()], ids=["default", "shrunk"])
def test_every_recipe_answers_for_every_sample(limits: Limits) -> None:
    """A recipe gives calls or None for every sample, and does not raise."""
    for row in VARIANTS:
        op = registry.get(row.op)
        for at, sample in enumerate(op.samples):
            graph: Graph = one_op(op, sample, sample.draw(at))
            node = graph.node(graph.outputs[0])
            types = tuple(graph.node(i).type for i in node.inputs)
            recipe = row.recipe(types, node.type, node.attrs, limits)
            assert recipe is None or recipe.calls, f"{row.name}: sample {at}"


def test_rows_by_subgroups_are_open_where_the_device_has_them() -> None:
    """Rows by subgroups need the feature; all others need none."""
    without = Hardware(Limits())
    shut = [row for row in VARIANTS if not row.is_open(without)]
    assert {row.op for row in shut} == {"softmax", "layer_norm", "rms_norm"}
    assert {row.feature for row in shut} == {"subgroup"}
    having = Hardware(Limits(), frozenset({"subgroup"}))
    assert all(row.is_open(having) for row in VARIANTS)
