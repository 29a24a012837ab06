"""Every row of the table of kernels gives the op's answers, on software adapters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rlxweb.backends.webgpu_pipelines import Pipelines
from rlxweb.gpu import native
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.recipes.variants import VARIANTS, Variant
from tests.agreement import Engine, on_adapter
from tests.conftest import ADAPTERS
from tests.ops.test_agreement import told
from tests.ops.ways import Case, plain
from tests.tiers import Sampler

EVERYWHERE = {DType.F32, DType.I32, DType.U32, DType.BOOL}
OPS = sorted({variant.op for variant in VARIANTS})
LARGE = {
    *(f"{op}, blocks of 128" for op in ("matmul", "quantized_matmul", "conv")),
    *("conv, blocks of 64", "conv, shared tiles", "conv, blocks of 128 windows"),
    "gather, rows by fours",
}
"""Rows that no sample is large enough for: where shapes are drawn for them, here and
in tests/lanes, they are tried.
"""
# By op and not by test, so that what one test compiled is still there for the next.
EACH_OP = pytest.mark.parametrize("name", OPS, scope="module")


def by_rows(want: Want, rows: Sequence[Variant] = VARIANTS) -> Engine:
    """The adapter with some rows of the table alone."""
    backend = on_adapter(want, variants=rows)
    return Engine(backend.name, backend)


def singles(name: str) -> list[Case]:
    """The op's cases of float32, indices and integers."""
    return [case for case in plain(name) if case.dtypes <= EVERYWHERE]


def taken(one: Engine, case: Case) -> str:
    """The row that runs the case, or the op itself; "" where it is decomposed."""
    node = case.graph.node(case.graph.outputs[0])
    inputs = tuple(case.graph.node(i).type for i in node.inputs)
    op = registry.get(node.op)
    chosen = one.backend.recipes.choose(op, inputs, node.type, node.attrs)
    return "" if chosen is None else chosen.variant


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.slow
@pytest.mark.requires_wgpu
@EACH_OP
def test_each_row_agrees_alone(name: str, adapter: Want, sampled: Sampler) -> None:
    """A row that others go before is right too, on devices with its feature. What it
    runs in the whole table as well, `test_agreement` has.
    """
    every, said = by_rows(adapter), []
    for row in VARIANTS:
        one = by_rows(adapter, [row])
        if row.op == name and row.is_open(one.backend.recipes.hardware):
            its = [case for case in singles(name) if taken(one, case) == row.name]
            assert bool(its) is (row.name not in LARGE)
            for case in sampled(its, 1, quick=1):
                if taken(every, case) != row.name:
                    found = told(one, case, one.run(case.graph, case.feeds)[0])
                    said += [f"{row.name}: {line}" for line in found]
    assert said == []


@pytest.mark.slow
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", OPS)
def test_own_shaders_need_no_checks(
    name: str, monkeypatch: pytest.MonkeyPatch, sampled: Sampler
) -> None:
    """Our shaders are right without the compiler's checks of indices and loops.

    That is the text's, the same for all: it runs on one adapter.
    """
    made, real = [], native.unchecked_module

    def kept(device: Any, source: str) -> Any:
        made.append(real(device, source))
        return made[-1]

    monkeypatch.setattr(native, "unchecked_module", kept)
    one = by_rows(ADAPTERS["lavapipe"])
    # Of its own: another op may have had the same text compiled without checks.
    one.backend.pipelines = Pipelines(one.backend.port, trusts="all")
    said = []
    for case in sampled(singles(name), 1, quick=1):
        said += told(one, case, one.run(case.graph, case.feeds)[0])
    for handle in one.backend.pipelines.values():
        one.backend.port.destroy(handle)
    assert said == []
    assert made
    assert None not in made


@pytest.mark.requires_wgpu
def test_rows_with_a_workgroup_are_taken(adapter: Want) -> None:
    """The kernel with a workgroup a row is taken for a case of each op that has it."""
    one = by_rows(adapter)
    wide = {
        name
        for name in OPS
        for case in singles(name)
        if "workgroup a row" in taken(one, case)
    }
    assert wide == {v.op for v in VARIANTS if "workgroup a row" in v.name}
