"""Which WGSL kernels are selected, split or forced, and how they are compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlxweb.engines.webgpu.pipeline_cache import PipelineCache
from rlxweb.gpu import wgpu_port
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import node_signature
from rlxweb.ir.layout import Layout
from rlxweb.ir.op import registry
from rlxweb.smoke.suite import list_variant_cases
from rlxweb.smoke.verdict import check_case
from tests.conftest import ADAPTERS
from tests.engines_under_test import EngineUnderTest, describe_mismatch, engine
from tests.kernel_tables import COPY_VARIANTS, WGSL_VARIANTS, engine_with_variants
from tests.ops.kernel_cases.case import Trial, kernel_case
from tests.ops.op_cases import OpCase, sample_cases
from tests.ops.test_agreement import mismatch_lines
from tests.suite_tiers import Sampler

pytestmark = pytest.mark.requires_wgpu
EVERYWHERE = {DType.F32, DType.I32, DType.U32, DType.BOOL}
OPS = sorted({variant.op for variant in WGSL_VARIANTS})


def portable_cases(name: str) -> list[OpCase]:
    """Return the op's cases of float32, integers and booleans."""
    return [case for case in sample_cases(name) if case.dtypes <= EVERYWHERE]


def selected_variant(runner: EngineUnderTest, case: OpCase | Trial) -> str:
    """Return the variant that runs the case, or the op's name; "" where it is
    decomposed.
    """
    node = case.graph.node(case.graph.outputs[0])
    kernel = runner.engine.kernel_selector.select_kernel(
        *node_signature(case.graph, node)
    )
    return "" if kernel is None else kernel.variant


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_own_shaders_need_no_checks(
    name: str, monkeypatch: pytest.MonkeyPatch, sampled: Sampler
) -> None:
    """Our shaders are right without the compiler's checks of indices and loops.

    Their text is the same for all adapters: one suffices.
    """
    modules, create_module = [], wgpu_port.create_unchecked_module

    def record_module(device: Any, source: str) -> Any:
        modules.append(create_module(device, source))
        return modules[-1]

    monkeypatch.setattr(wgpu_port, "create_unchecked_module", record_module)
    runner = engine_with_variants(ADAPTERS["lavapipe"])
    # Of its own: another op may have had the same text compiled without checks.
    runner.engine.pipelines = PipelineCache(runner.engine.port, trusted_shaders="all")
    failures = []
    for case in sampled(portable_cases(name), 1, quick=1):
        failures += mismatch_lines(runner, case, runner.run(case.graph, case.feeds)[0])
    for handle in runner.engine.pipelines.handles():
        runner.engine.port.destroy(handle)
    assert failures == []
    assert modules
    assert None not in modules


def test_per_workgroup_variants_are_selected(adapter: AdapterRequest) -> None:
    """The per-workgroup kernel is selected for a case of each op that has one."""
    runner = engine_with_variants(adapter)
    selected_ops = {
        name
        for name in OPS
        for case in portable_cases(name)
        if "workgroup a row" in selected_variant(runner, case)
    }
    assert selected_ops == {v.op for v in WGSL_VARIANTS if "workgroup a row" in v.name}


@pytest.mark.full("opengl", "swiftshader")
def test_copy_variants_can_be_forced(adapter: AdapterRequest) -> None:
    """The suite lists copy variants where they fit; vec4 copies take precedence over
    tiles.
    """
    webgpu_engine = engine(adapter).engine
    forced = [
        c for c in list_variant_cases(webgpu_engine, "standard") if c.op == "transpose"
    ]
    assert len(forced) >= 3
    assert {case.variant for case in forced} <= {copy.name for copy in COPY_VARIANTS}
    for case in forced:
        assert run_blocking(check_case(case, webgpu_engine)).word == "right"
    shaders = []
    for shape in ((40, 36), (40, 33)):
        layout = Layout.dense(shape).transpose((1, 0))
        copy_arguments = (layout, Layout.dense(layout.shape), DType.F32)
        assert webgpu_engine.with_variant(
            COPY_VARIANTS[1].name
        ).kernel_selector.copy_dispatch(*copy_arguments).shader == ("transpose_tiles")
        shaders.append(
            webgpu_engine.kernel_selector.copy_dispatch(*copy_arguments).shader
        )
    layout = Layout.dense((64, 64)).transpose((1, 0))
    copy_arguments = (layout, Layout.dense(layout.shape), DType.BOOL)
    shaders.append(webgpu_engine.kernel_selector.copy_dispatch(*copy_arguments).shader)
    assert shaders[:2] == ["transpose_fours", "transpose_tiles"]
    assert shaders[2] not in shaders[:2]


@pytest.mark.slow
def test_convolution_accumulates_over_split_weights(adapter: AdapterRequest) -> None:
    """Weights exceed one binding, so partial sums accumulate over several launches."""
    limits = replace(
        adapter.limits,
        max_storage_buffer_binding_size=1 << 14,
        max_buffer_size=4 << 20,
        min_storage_buffer_offset_alignment=256,
    )
    runner = engine(replace(adapter, limits=limits))
    trial = kernel_case(
        "conv", "weights in pieces", (1, 30, 8, 8), (20, 30, 3, 3)
    ).trial()
    kernel = runner.engine.kernel_selector.select_kernel(
        *node_signature(trial.graph, trial.node)
    )
    assert kernel is not None
    assert len(kernel.launches) > 1
    assert "blocks of 64 windows" in kernel.variant
    got = runner.run(trial.graph, trial.feeds)[0]
    tolerance = registry.get("conv").tolerance
    assert describe_mismatch(got, trial.expected[0], DType.F32, tolerance) == ""
