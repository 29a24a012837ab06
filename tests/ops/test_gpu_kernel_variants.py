"""Test that every kernel variant gives the op's answers, on software adapters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rlxweb.engines.webgpu.pipeline_cache import PipelineCache
from rlxweb.gpu import wgpu_port
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import registry
from rlxweb.ops.kernel_variant import KernelVariant
from tests.conftest import ADAPTERS
from tests.engines_under_test import Engine, adapter_backend
from tests.kernel_tables import WGSL_TABLE, WGSL_VARIANTS
from tests.ops.op_cases import OpCase, sample_cases
from tests.ops.test_agreement import mismatch_lines
from tests.suite_tiers import Sampler

EVERYWHERE = {DType.F32, DType.I32, DType.U32, DType.BOOL}
OPS = sorted({variant.op for variant in WGSL_VARIANTS})
UNSAMPLED_VARIANTS = {
    *(f"{op}, blocks of 128" for op in ("matmul", "quantized_matmul", "conv")),
    *("conv, blocks of 64", "conv, shared tiles", "conv, blocks of 128 windows"),
    "gather, rows by fours",
}
"""Variants that no sample is large enough for; they are tested with drawn shapes here
and in tests/lanes.
"""
# By op and not by test, so that what one test compiled is still there for the next.
EACH_OP = pytest.mark.parametrize("name", OPS, scope="module")


def engine_with_variants(
    request: AdapterRequest, variants: Sequence[KernelVariant] = WGSL_TABLE.variants
) -> Engine:
    """Return the adapter's engine with some kernel variants alone."""
    backend = adapter_backend(request, variants=variants)
    return Engine(backend.name, backend)


def portable_cases(name: str) -> list[OpCase]:
    """Return the op's cases of float32, integers and booleans."""
    return [case for case in sample_cases(name) if case.dtypes <= EVERYWHERE]


def selected_variant(engine: Engine, case: OpCase) -> str:
    """Return the variant that runs the case, or the op's name; "" where it is
    decomposed.
    """
    node = case.graph.node(case.graph.outputs[0])
    inputs = tuple(case.graph.node(i).type for i in node.inputs)
    op = registry.get(node.op)
    kernel = engine.backend.kernel_selector.select_kernel(
        op, inputs, node.type, node.attrs
    )
    return "" if kernel is None else kernel.variant


@pytest.mark.full("opengl", "swiftshader")
@pytest.mark.slow
@pytest.mark.requires_wgpu
@EACH_OP
def test_each_variant_agrees_alone(
    name: str, adapter: AdapterRequest, sampled: Sampler
) -> None:
    """A variant that others precede is right too, on devices with its feature. Cases
    that it runs in the whole table are in `test_agreement`.
    """
    full_engine, failures = engine_with_variants(adapter), []
    for variant in WGSL_VARIANTS:
        engine = engine_with_variants(adapter, [variant])
        if variant.op == name and variant.is_supported(
            engine.backend.kernel_selector.hardware.features
        ):
            variant_cases = [
                case
                for case in portable_cases(name)
                if selected_variant(engine, case) == variant.name
            ]
            assert bool(variant_cases) is (variant.name not in UNSAMPLED_VARIANTS)
            for case in sampled(variant_cases, 1, quick=1):
                if selected_variant(full_engine, case) != variant.name:
                    lines = mismatch_lines(
                        engine, case, engine.run(case.graph, case.feeds)[0]
                    )
                    failures += [f"{variant.name}: {line}" for line in lines]
    assert failures == []


@pytest.mark.slow
@pytest.mark.requires_wgpu
@pytest.mark.parametrize("name", OPS)
def test_own_shaders_need_no_checks(
    name: str, monkeypatch: pytest.MonkeyPatch, sampled: Sampler
) -> None:
    """Our shaders are right without the compiler's checks of indices and loops. The
    text is the same for all adapters: one suffices.

    That is the text's, the same for all: it runs on one adapter.
    """
    modules, create_module = [], wgpu_port.create_unchecked_module

    def record_module(device: Any, source: str) -> Any:
        modules.append(create_module(device, source))
        return modules[-1]

    monkeypatch.setattr(wgpu_port, "create_unchecked_module", record_module)
    engine = engine_with_variants(ADAPTERS["lavapipe"])
    # Of its own: another op may have had the same text compiled without checks.
    engine.backend.pipelines = PipelineCache(engine.backend.port, trusted_shaders="all")
    failures = []
    for case in sampled(portable_cases(name), 1, quick=1):
        failures += mismatch_lines(engine, case, engine.run(case.graph, case.feeds)[0])
    for handle in engine.backend.pipelines.handles():
        engine.backend.port.destroy(handle)
    assert failures == []
    assert modules
    assert None not in modules


@pytest.mark.requires_wgpu
def test_per_workgroup_variants_are_selected(adapter: AdapterRequest) -> None:
    """The per-workgroup kernel is selected for a case of each op that has one."""
    engine = engine_with_variants(adapter)
    selected_ops = {
        name
        for name in OPS
        for case in portable_cases(name)
        if "workgroup a row" in selected_variant(engine, case)
    }
    assert selected_ops == {v.op for v in WGSL_VARIANTS if "workgroup a row" in v.name}
