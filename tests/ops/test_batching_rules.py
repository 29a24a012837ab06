"""Compare every op applied to a batch of examples with a loop over the examples.

On every sample of an op, with all operands varying and each one alone. Which ops are
still applied to one example after the other is a list, so that it does not grow unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.ir import vmap_batching
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.ir.shape_arithmetic import MAX_RANK
from tests.engines_under_test import describe_mismatch, engine
from tests.suite_tiers import Sampler, thin_out_cases

EXAMPLE_COUNT = 3
MAX_ELEMENTS = 3000
LOOPED_OPS = {
    *("gru", "lstm", "rnn", "linear_recurrence", "selective_scan"),  # their weights
    *("non_max_suppression", "roi_align"),
}
CPU = engine(None)


def batched_operand_patterns(count: int) -> set[tuple[bool, ...]]:
    """Return which operands are batched: all, or one."""
    alone = {tuple(i == k for i in range(count)) for k in range(count)}
    return {(True,) * count, *alone}


def small_samples(op: Op) -> Iterator[Sample]:
    for sample in op.samples:
        is_small = (
            sum(np.prod(operand.shape) for operand in sample.inputs) <= MAX_ELEMENTS
        )
        has_no_16_bit_dtype = all(
            operand.dtype.nbytes != 2 for operand in sample.inputs
        )
        has_spare_axis = all(len(operand.shape) < MAX_RANK for operand in sample.inputs)
        if is_small and has_no_16_bit_dtype and has_spare_axis:
            yield sample


def batching_mismatch(
    op: Op, sample: Sample, draws: list[Any], varies: tuple[bool, ...]
) -> str:
    """Describe what is wrong with the batched op over the operands that vary."""
    names = [f"x{i}" for i in range(len(varies))]
    single_graph, batched_graph = Graph("one"), Graph("many")
    operands = [
        [g.input(n, a.shape, a.dtype) for n, a in zip(names, draws[0], strict=True)]
        for g in (single_graph, batched_graph)
    ]
    single_graph.set_outputs(
        [single_graph.apply(op.name, *operands[0], **sample.attrs)]
    )
    result = batched_graph.apply(op.name, *operands[1], **sample.attrs)
    batched_indices = [n for n, is_batched in enumerate(varies) if is_batched]
    stacked = {
        f"all{n}": np.stack([draw[n] for draw in draws]) for n in batched_indices
    }
    batched_inputs = [
        batched_graph.input(n, a.shape, a.dtype) for n, a in stacked.items()
    ]
    batched_graph.set_outputs(
        batched_graph.vectorized(
            [result], [operands[1][n] for n in batched_indices], batched_inputs
        )
    )
    fixed = dict(zip(names, draws[0], strict=True))
    (got,) = CPU.run(batched_graph, fixed | stacked)
    each = [
        CPU.run(single_graph, fixed | {names[n]: draw[n] for n in batched_indices})[0]
        for draw in draws
    ]
    want, tolerance = np.stack(each), op.tolerance
    if got.dtype.kind == "f":
        want = want.astype(np.float64)
    loose_tolerance = replace(
        tolerance, rtol=2 * tolerance.rtol + 2e-6, atol=2 * tolerance.atol + 1e-6
    )
    return describe_mismatch(got, want, result.dtype, loose_tolerance)


@pytest.mark.parametrize(
    "op",
    thin_out_cases([op for op in registry if not op.has_trait("leaf")], 2),
    ids=lambda op: op.name,
)
def test_batched_op_agrees_with_a_loop(
    op: Op, monkeypatch: pytest.MonkeyPatch, sampled: Sampler
) -> None:
    looped_ops, batch_in_loop = [], vmap_batching.batch_in_loop

    def record_loop(ctx: vmap_batching.BatchContext) -> Any:
        looped_ops.append(ctx.op)
        return batch_in_loop(ctx)

    monkeypatch.setattr(vmap_batching, "batch_in_loop", record_loop)
    mismatches = {}
    for sample in sampled([*small_samples(op)], 4, quick=2):
        draws = [sample.draw(seed) for seed in range(EXAMPLE_COUNT)]
        for varies in batched_operand_patterns(len(sample.inputs)):
            mismatch = batching_mismatch(op, sample, draws, varies)
            if mismatch:
                shapes = [operand.shape for operand in sample.inputs]
                mismatches[f"{shapes} {dict(sample.attrs)} {varies}"] = mismatch
    assert mismatches == {}
    assert bool(looped_ops) == (op.name in LOOPED_OPS)
