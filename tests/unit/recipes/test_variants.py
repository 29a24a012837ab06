"""The table of faster alternatives: sound rows, gates that can be asked anything."""

from __future__ import annotations

import pytest

from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.limits import Limits, shrunk
from rlxweb.recipes.variants import VARIANTS, Hardware, always, variants_of
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


@pytest.mark.parametrize("software", [True, False])
@pytest.mark.parametrize("limits", [Limits(), shrunk()], ids=["default", "shrunk"])
def test_every_gate_and_recipe_answers_for_every_sample(
    software: bool, limits: Limits
) -> None:
    """A gate says yes or no, a recipe gives calls or None: neither may raise."""
    hardware = Hardware(software, limits)
    for row in VARIANTS:
        op = registry.get(row.op)
        for at, sample in enumerate(op.samples):
            graph: Graph = one_op(op, sample, sample.draw(at))
            node = graph.node(graph.outputs[0])
            types = tuple(graph.node(i).type for i in node.inputs)
            if not row.gate(hardware):
                continue
            recipe = row.recipe(types, node.type, node.attrs, limits)
            assert recipe is None or recipe.calls, f"{row.name}: sample {at}"


def test_always_is_never_shut() -> None:
    """The gate of a row that is better everywhere."""
    assert always(Hardware(True, Limits()))
