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
from tests.agreement import Engine, _port, judge, oracle
from tests.ops.ways import plain

OPS = sorted({variant.op for variant in VARIANTS})


def as_hardware(want: Want) -> Engine:
    """The adapter as if it were a GPU."""
    backend = WebGpuBackend(_port(want), variants=True)
    backend.recipes.hardware = replace(backend.recipes.hardware, software=False)
    return Engine(f"{backend.name} taken for a GPU", backend)


@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", OPS)
def test_gpu_kernels_agree(name: str, adapter: Want) -> None:
    """Every sample of every op that has a variant, by the variant for GPUs."""
    one, op, said = as_hardware(adapter), registry.get(name), []
    for case in plain(name):
        if case.dtypes != {DType.F32}:
            continue
        got, want = (
            one.run(case.graph, case.feeds)[0],
            oracle(case.graph, case.feeds)[0],
        )
        why = judge(got, want, case.out, op.tolerance)
        said += [f"{case.label} on {one.name}: {why}"] if why else []
    assert said == []


@pytest.mark.requires_wgpu
def test_the_gates_for_gpus_were_open(adapter: Want) -> None:
    """At least one case of each op took a variant that software adapters do not."""
    one = as_hardware(adapter)
    taken = set()
    for name in OPS:
        op = registry.get(name)
        for case in plain(name):
            if case.dtypes != {DType.F32}:
                continue
            node = case.graph.node(case.graph.outputs[0])
            inputs = tuple(case.graph.node(i).type for i in node.inputs)
            chosen = one.backend.recipes.choose(op, inputs, node.type, node.attrs)
            if chosen is not None and "workgroup a row" in chosen.variant:
                taken.add(name)
    wanted = {v.op for v in VARIANTS if "workgroup a row" in v.name}
    assert taken == wanted
