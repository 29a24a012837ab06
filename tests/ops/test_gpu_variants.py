"""Kernels made for GPUs give the same answers on the software adapters.

A test machine has no GPU, but the text of those kernels is valid anywhere: here the
adapters are taken for hardware, so that the gates for it open.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.gpu.port import Want
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.recipes.variants import VARIANTS
from tests.agreement import Engine, _port
from tests.ops.test_agreement import told
from tests.ops.ways import Case, plain

OPS = sorted({variant.op for variant in VARIANTS})


def as_hardware(want: Want) -> Engine:
    """The adapter as if it were a GPU."""
    backend = WebGpuBackend(_port(want), variants=True)
    backend.recipes.hardware = replace(backend.recipes.hardware, software=False)
    return Engine(f"{backend.name} taken for a GPU", backend)


def singles(name: str) -> list[Case]:
    """The op's cases in float32 alone."""
    return [case for case in plain(name) if case.dtypes == {DType.F32}]


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", OPS)
def test_gpu_kernels_agree(name: str, adapter: Want) -> None:
    """Every sample of every op that has a variant, by the variant for GPUs."""
    one, said = as_hardware(adapter), []
    for case in singles(name):
        said += told(one, case, one.run(case.graph, case.feeds)[0])
    assert said == []


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
