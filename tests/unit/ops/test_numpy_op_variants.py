"""The CPU's table of faster variants: valid entries, and none that changes a result."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.ir.graph import node_signature
from rlxweb.ops.cache_blocking import is_large
from rlxweb.ops.kernel_variant import KernelVariant
from tests.engines_under_test import engine
from tests.kernel_tables import NUMPY_VARIANTS
from tests.ops.op_cases import OpCase, sample_cases


@pytest.fixture(autouse=True)
def enable_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable the variants that WebAssembly adds when compilation is on."""
    monkeypatch.setenv("RLX_FAST", "background")


def can_run_case(variant: KernelVariant, case: OpCase) -> bool:
    """Return whether the variant's gate accepts a case."""
    node = case.graph.node(case.graph.outputs[0])
    return variant.can_run(*node_signature(case.graph, node)[1:])


def test_variants_have_distinct_names() -> None:
    names = [variant.name for variant in NUMPY_VARIANTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "variant",
    [row for row in NUMPY_VARIANTS if row.gate is not is_large],
    ids=lambda row: row.name,
)
def test_some_sample_runs_the_variant(variant: KernelVariant) -> None:
    """No gate raises, and the agreement tests have a sample that each gate accepts.

    But for parts of what is larger than any sample: `test_cache_blocking.py` has
    some.
    """
    assert any([can_run_case(variant, case) for case in sample_cases(variant.op)])


def sample_outputs(op: str, variants: bool) -> list[np.ndarray]:
    """The op's results on all its samples."""
    engine_under_test = engine(None, variants=variants)
    return [
        engine_under_test.run(case.graph, case.feeds)[0] for case in sample_cases(op)
    ]


@pytest.mark.parametrize("op", ["frame", "power_peaks", "topk"])
def test_ops_without_rounding_are_bit_identical(op: str) -> None:
    """Searches and views give the same bits with and without the variant."""
    with_variants, without = sample_outputs(op, True), sample_outputs(op, False)
    for got, want in zip(with_variants, without, strict=True):
        np.testing.assert_array_equal(got, want)
