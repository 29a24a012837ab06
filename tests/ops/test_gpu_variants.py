"""Kernels made for GPUs give the same answers on the software adapters.

A test machine has no GPU, but the text of those kernels is valid anywhere: here the
adapters are taken for hardware, so that the gates for it open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rlxweb.backends.webgpu_pipelines import Pipelines
from rlxweb.gpu import native
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.limits import Limits
from rlxweb.recipes.variants import (
    VARIANTS,
    WELCH,
    Hardware,
    Variant,
    always,
    never,
    on_slow_compilers,
)
from tests.agreement import Engine, on_adapter
from tests.ops.test_agreement import told
from tests.ops.ways import Case, plain

EVERYWHERE = {DType.F32, DType.I32, DType.U32, DType.BOOL}
OPS = sorted({variant.op for variant in VARIANTS})
A_GPU = Hardware(False, Limits(), frozenset({"subgroup"}))
ROWS = [
    replace(row, gate=always) if row.gate is never else row
    for row in VARIANTS
    if row.gate is never or row.gate(A_GPU)
]
# By op and not by test, so that what one test compiled is still there for the next.
EACH_OP = pytest.mark.parametrize("name", OPS, scope="module")


def as_hardware(want: Want, rows: Sequence[Variant] = VARIANTS) -> Engine:
    """The adapter as if it were a GPU, with some rows of the table alone."""
    backend = on_adapter(want, variants=rows)
    backend.recipes.hardware = replace(backend.recipes.hardware, software=False)
    return Engine(f"{backend.name} taken for a GPU", backend)


def singles(name: str) -> list[Case]:
    """The op's cases of float32, indices and integers."""
    return [case for case in plain(name) if case.dtypes <= EVERYWHERE]


@pytest.mark.requires_wgpu
@EACH_OP
def test_gpu_kernels_agree(name: str, adapter: Want) -> None:
    """Every sample of every op that has a variant, by the variant for GPUs."""
    one, said = as_hardware(adapter), []
    for case in singles(name):
        said += told(one, case, one.run(case.graph, case.feeds)[0])
    assert said == []


@pytest.mark.slow
@pytest.mark.requires_wgpu
@EACH_OP
def test_each_row_agrees_alone(name: str, adapter: Want) -> None:
    """A row that others go before is right too, wherever its gate opens."""
    said = []
    for row in ROWS:
        one = as_hardware(adapter, [row])
        if row.op == name and row.gate(one.backend.recipes.hardware):
            for case in singles(name):
                found = told(one, case, one.run(case.graph, case.feeds)[0])
                said += [f"{row.name}: {line}" for line in found]
    assert said == []


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", WELCH)
def test_texts_for_slow_compilers_agree(name: str, adapter: Want) -> None:
    """What browsers without a GPU run, on the adapter as if it were theirs."""
    rows = [row for row in VARIANTS if row.gate is on_slow_compilers]
    backend = on_adapter(adapter, variants=rows)
    hardware = backend.recipes.hardware
    assert rows
    assert not rows[0].gate(hardware)
    limits = replace(hardware.limits, max_compute_workgroup_storage_size=0)
    backend.recipes.hardware = replace(hardware, limits=limits)
    one, said, taken = Engine(f"{backend.name} of a browser", backend), [], 0
    for case in singles(name):
        node = case.graph.node(case.graph.outputs[0])
        inputs = tuple(case.graph.node(i).type for i in node.inputs)
        op = registry.get(name)
        taken += backend.recipes.choose(op, inputs, node.type, node.attrs) is not None
        said += told(one, case, one.run(case.graph, case.feeds)[0])
    assert said == []
    assert taken


@pytest.mark.slow
@pytest.mark.requires_wgpu
@EACH_OP
def test_own_shaders_need_no_checks(
    name: str, adapter: Want, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index is outside and no loop endless: without the compiler's checks too."""
    made, real = [], native.unchecked_module

    def kept(device: Any, source: str) -> Any:
        made.append(real(device, source))
        return made[-1]

    monkeypatch.setattr(native, "unchecked_module", kept)
    one = as_hardware(adapter)
    # Of its own: another op may have had the same text compiled without checks.
    one.backend.pipelines = Pipelines(one.backend.port, trusts="all")
    said = []
    for case in singles(name):
        said += told(one, case, one.run(case.graph, case.feeds)[0])
    for handle in one.backend.pipelines.values():
        one.backend.port.destroy(handle)
    assert said == []
    assert made
    assert None not in made


@pytest.mark.requires_wgpu
def test_the_gates_for_gpus_were_open(adapter: Want) -> None:
    """At least one case of each op took a variant that software adapters do not."""
    one = as_hardware(adapter)
    taken = set()
    for name in OPS:
        op = registry.get(name)
        for case in singles(name):
            node = case.graph.node(case.graph.outputs[0])
            inputs = tuple(case.graph.node(i).type for i in node.inputs)
            chosen = one.backend.recipes.choose(op, inputs, node.type, node.attrs)
            if chosen is not None and "workgroup a row" in chosen.variant:
                taken.add(name)
    wanted = {v.op for v in VARIANTS if "workgroup a row" in v.name}
    assert taken == wanted
