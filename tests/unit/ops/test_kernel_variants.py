"""The table of kernel variants: consistent rows that answer for every sample of their
op.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlxweb.core.errors import UnknownOp
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.ir.graph import Graph, node_signature
from rlxweb.ir.op import registry
from rlxweb.ops.kernel_variant import KernelTable
from tests.engines_under_test import single_op_graph
from tests.kernel_tables import WGSL_VARIANTS


def test_variants_have_distinct_names() -> None:
    names = [variant.name for variant in WGSL_VARIANTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("op", "hint"), [("matmull", "matmul"), ("remainder", "")])
def test_a_table_refuses_a_variant_of_no_op(op: str, hint: str) -> None:
    """A variant of a misspelt op, or of an alias, would never run and never be
    missed.
    """
    variant = replace(WGSL_VARIANTS[0], name="tiled", op=op)
    with pytest.raises(
        UnknownOp, match=f"^kernel variant 'tiled': it is for op '{op}', .*{hint}"
    ):
        KernelTable((*WGSL_VARIANTS, variant))


def test_a_table_keeps_its_order() -> None:
    """The order matters: the first variant that fits is used."""
    table = KernelTable(WGSL_VARIANTS)
    for op in {variant.op for variant in WGSL_VARIANTS}:
        of_op = [variant for variant in WGSL_VARIANTS if variant.op == op]
        assert list(table.for_op(op)) == of_op
        assert table.ordered(op, ()) == [*of_op, None]
    assert table.for_op("no such op") == ()


def test_the_id_of_a_table_tells_the_order_of_an_ops_kernels() -> None:
    """Results measured with one table are no use to another; the order of ops does not
    count.
    """
    by_op = sorted(WGSL_VARIANTS, key=lambda variant: variant.op)
    assert KernelTable(by_op).id == KernelTable(WGSL_VARIANTS).id
    assert KernelTable(WGSL_VARIANTS[::-1]).id != KernelTable(WGSL_VARIANTS).id
    assert KernelTable(WGSL_VARIANTS[1:]).id != KernelTable(WGSL_VARIANTS).id


@pytest.mark.parametrize("limits", [Limits(), tiny_limits()], ids=["default", "shrunk"])
def test_every_plan_answers_for_every_sample(limits: Limits) -> None:
    """A variant returns dispatches or None for every sample and does not raise."""
    for variant in WGSL_VARIANTS:
        op = registry.get(variant.op)
        for sample_index, sample in enumerate(op.samples):
            graph: Graph = single_op_graph(op, sample, sample.draw(sample_index))
            node = graph.node(graph.outputs[0])
            plan = variant.build(*node_signature(graph, node)[1:], limits)
            assert plan is None or plan.dispatches, (
                f"{variant.name}: sample {sample_index}"
            )


def test_subgroup_variants_need_the_feature() -> None:
    """Subgroup variants need the device feature; all others need none."""
    unsupported = [
        variant for variant in WGSL_VARIANTS if not variant.is_supported(frozenset())
    ]
    assert {variant.op for variant in unsupported} == {
        "softmax",
        "layer_norm",
        "rms_norm",
    }
    assert {variant.feature for variant in unsupported} == {"subgroup"}
    with_subgroups = frozenset({"subgroup"})
    assert all(variant.is_supported(with_subgroups) for variant in WGSL_VARIANTS)
