"""The table of kernel variants: consistent rows that answer for every sample of their
op.
"""

from __future__ import annotations

import pytest

from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.ops.kernel_variants import VARIANTS, Hardware, variants_for_op
from tests.engines_under_test import single_op_graph


def test_variants_have_distinct_names_and_real_ops() -> None:
    """A variant of an op that does not exist would never run and never be missed."""
    names = [variant.name for variant in VARIANTS]
    assert len(set(names)) == len(names)
    assert all(variant.op in registry for variant in VARIANTS)


def test_variants_for_op_keeps_table_order() -> None:
    """The order matters: the first variant that fits is used."""
    for op in {variant.op for variant in VARIANTS}:
        assert list(variants_for_op(op)) == [
            variant for variant in VARIANTS if variant.op == op
        ]
    assert variants_for_op("no such op") == ()


@pytest.mark.parametrize("limits", [Limits(), tiny_limits()], ids=["default", "shrunk"])
def test_every_plan_answers_for_every_sample(limits: Limits) -> None:
    """A variant returns dispatches or None for every sample and does not raise."""
    for variant in VARIANTS:
        op = registry.get(variant.op)
        for sample_index, sample in enumerate(op.samples):
            graph: Graph = single_op_graph(op, sample, sample.draw(sample_index))
            node = graph.node(graph.outputs[0])
            types = tuple(graph.node(i).type for i in node.inputs)
            plan = variant.plan(types, node.type, node.attrs, limits)
            assert plan is None or plan.dispatches, (
                f"{variant.name}: sample {sample_index}"
            )


def test_subgroup_variants_need_the_feature() -> None:
    """Subgroup variants need the device feature; all others need none."""
    without_subgroups = Hardware(Limits())
    unsupported = [
        variant for variant in VARIANTS if not variant.is_supported(without_subgroups)
    ]
    assert {variant.op for variant in unsupported} == {
        "softmax",
        "layer_norm",
        "rms_norm",
    }
    assert {variant.feature for variant in unsupported} == {"subgroup"}
    with_subgroups = Hardware(Limits(), frozenset({"subgroup"}))
    assert all(variant.is_supported(with_subgroups) for variant in VARIANTS)
