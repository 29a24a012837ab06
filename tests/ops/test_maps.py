"""Every op for many examples at once is what it is for one after the other.

On every sample of an op, with all operands varying and each one alone. Which ops are
still applied to one example after the other is a list, so that it does not grow unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.ir import batching
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import Op, registry
from rlxweb.ir.sample import Sample
from rlxweb.ir.shape import MAX_RANK
from tests.agreement import engine, judge
from tests.tiers import Sampler, thinned

COUNT = 3
MOST = 3000
IN_TURN = {
    *("gru", "lstm", "rnn", "linear_recurrence", "selective_scan"),  # their weights
    *("non_max_suppression", "roi_align"),
}
CPU = engine(None)


def patterns(count: int) -> set[tuple[bool, ...]]:
    """Which operands vary: all, or one."""
    alone = {tuple(i == k for i in range(count)) for k in range(count)}
    return {(True,) * count, *alone}


def cases(op: Op) -> Iterator[Sample]:
    for sample in op.samples:
        small = sum(np.prod(one.shape) for one in sample.inputs) <= MOST
        short = all(one.dtype.nbytes != 2 for one in sample.inputs)
        fits = all(len(one.shape) < MAX_RANK for one in sample.inputs)
        if small and short and fits:
            yield sample


def one(op: Op, sample: Sample, draws: list[Any], varies: tuple[bool, ...]) -> str:
    """What is wrong with the map over the operands that vary."""
    names = [f"x{i}" for i in range(len(varies))]
    alone, many = Graph("one"), Graph("many")
    given = [
        [g.input(n, a.shape, a.dtype) for n, a in zip(names, draws[0], strict=True)]
        for g in (alone, many)
    ]
    alone.set_outputs([alone.apply(op.name, *given[0], **sample.attrs)])
    made = many.apply(op.name, *given[1], **sample.attrs)
    which = [n for n, its in enumerate(varies) if its]
    stacked = {f"all{n}": np.stack([draw[n] for draw in draws]) for n in which}
    wholes = [many.input(n, a.shape, a.dtype) for n, a in stacked.items()]
    many.set_outputs(many.vectorized([made], [given[1][n] for n in which], wholes))
    fixed = dict(zip(names, draws[0], strict=True))
    (got,) = CPU.run(many, fixed | stacked)
    each = [
        CPU.run(alone, fixed | {names[n]: draw[n] for n in which})[0] for draw in draws
    ]
    want, own = np.stack(each), op.tolerance
    if got.dtype.kind == "f":
        want = want.astype(np.float64)
    bound = replace(own, rtol=2 * own.rtol + 2e-6, atol=2 * own.atol + 1e-6)
    return judge(got, want, made.dtype, bound)


@pytest.mark.parametrize(
    "op",
    thinned([op for op in registry if not op.has("leaf")], 2),
    ids=lambda op: op.name,
)
def test_a_map_is_a_loop(
    op: Op, monkeypatch: pytest.MonkeyPatch, sampled: Sampler
) -> None:
    turned, in_turn = [], batching.in_turn

    def watched(at: batching.Examples) -> Any:
        turned.append(at.op)
        return in_turn(at)

    monkeypatch.setattr(batching, "in_turn", watched)
    wrong = {}
    for sample in sampled([*cases(op)], 4, quick=2):
        draws = [sample.draw(seed) for seed in range(COUNT)]
        for varies in patterns(len(sample.inputs)):
            said = one(op, sample, draws, varies)
            if said:
                shapes = [drawn.shape for drawn in sample.inputs]
                wrong[f"{shapes} {dict(sample.attrs)} {varies}"] = said
    assert wrong == {}
    assert bool(turned) == (op.name in IN_TURN)
