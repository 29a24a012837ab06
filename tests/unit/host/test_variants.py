"""The CPU's table of faster ways: sound rows, and no row that changes an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.backends.cpu import CpuBackend
from rlxweb.host.in_parts import is_large
from rlxweb.host.variants import VARIANTS, Variant
from rlxweb.ir.op import TensorType, registry
from tests.agreement import Engine, engine
from tests.ops.test_agreement import wrong
from tests.ops.ways import Case, plain, through_views

ROWS = {row.op: row for row in VARIANTS}


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch on the rows that WebAssembly has where they are wanted."""
    monkeypatch.setenv("RLX_FAST", "background")


def gate_of(row: Variant, case: Case) -> bool:
    """Tell whether the gate is open for a case."""
    node = case.graph.node(case.graph.outputs[0])
    types = tuple(case.graph.node(i).type for i in node.inputs)
    return row.takes(types, node.type, node.attrs)


def floats(inputs: tuple[TensorType, ...], out: TensorType, attrs: Any) -> bool:
    """A gate that asks for no size."""
    return inputs[0].dtype.is_float


def test_rows_have_distinct_names_and_real_ops() -> None:
    """A row for an op that does not exist would never be taken and never be missed."""
    names = [row.name for row in VARIANTS]
    assert len(set(names)) == len(names) == len(ROWS)
    assert all(op in registry for op in ROWS)


@pytest.mark.parametrize(
    "row",
    [row for row in VARIANTS if row.gate is not is_large],
    ids=lambda row: row.name,
)
def test_some_sample_takes_the_row(row: Variant) -> None:
    """No gate raises, and the agreement tests have something that opens each.

    But for parts of what is larger than any sample: `test_in_parts.py` has some.
    """
    assert any([gate_of(row, case) for case in plain(row.op)])


@pytest.mark.parametrize("op", sorted(ROWS))
def test_a_row_is_right_for_every_sample(op: str) -> None:
    """A gate's size says what pays, not what is right."""
    row = replace(ROWS[op], gate=floats)
    one = Engine("NumPy, every gate open", CpuBackend(variants=[row]))
    assert wrong(one, plain(op)) == []
    assert wrong(one, through_views(op)) == []


def outputs(op: str, variants: bool) -> list[np.ndarray]:
    """The op's results on all its samples."""
    one = engine(None, variants=variants)
    return [one.run(case.graph, case.feeds)[0] for case in plain(op)]


@pytest.mark.parametrize("op", ["frame", "power_peaks", "topk"])
def test_what_rounds_nothing_is_the_same_bits(op: str) -> None:
    """Searches and views are the same bits with the row and without it."""
    with_rows, without = outputs(op, True), outputs(op, False)
    for got, want in zip(with_rows, without, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", ["power_peaks", "topk"])
def test_searches_rank_nan_and_infinity_as_the_references_do(op: str) -> None:
    """Searches rank NaN and infinity as the references do, also beside other lines."""
    rng = np.random.default_rng(5)
    x = rng.choice([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan], (70, 40))
    x = np.where(np.arange(70)[:, None] % 2, x, rng.normal(size=x.shape))
    record, row = registry.get(op), ROWS[op]
    for k in (1, 7, 40):
        got, want = row.run({"k": k}, x), record.reference(np, {"k": k}, x)
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
