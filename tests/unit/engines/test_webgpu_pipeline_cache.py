"""Bounded cache of compiled WebGPU pipelines, shared by the engines of one port."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.codegen.kernel_launch_records import ComputeShader
from rlxweb.compiler.pipeline import compile_graph
from rlxweb.core.errors import ShaderRejected
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.engines.webgpu.kernel_selection import Hardware, KernelSelector
from rlxweb.engines.webgpu.pipeline_cache import PipelineCache, TrustLevel
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ir.graph import Graph, node_signature
from rlxweb.ir.op import registry
from rlxweb.ops.welch.graph import welch_graph
from rlxweb.signal.presets import spec_from_preset
from tests.fake_gpu_port import FakePort, InjectedFailure
from tests.gpu_ports import open_fake_port, prepare_graph, scaled_graph
from tests.op_factory import make_op


def numbered_shader(number: int) -> ComputeShader:
    return ComputeShader(f"fn main() {{}} // {number}", ("write", "uniform"), ())


@pytest.fixture
def port() -> FakePort:
    return open_fake_port()


def test_a_shader_is_compiled_once(port: FakePort) -> None:
    """A repeated request returns the same handle; other constants give another one."""
    table = PipelineCache(port)
    first = run_blocking(table.get(numbered_shader(1), set()))
    assert run_blocking(table.get(numbered_shader(1), set())) == first
    other = ComputeShader(
        numbered_shader(1).source, ("write", "uniform"), (("WG", 32),)
    )
    assert run_blocking(table.get(other, set())) != first
    assert port.created_counts["pipelines"] == 2


@pytest.mark.parametrize("in_bounds", [False, True])
@pytest.mark.parametrize("trusts", ["none", "proven", "all"])
def test_only_our_own_shaders_are_ever_trusted(
    port: FakePort, trusts: TrustLevel, in_bounds: bool
) -> None:
    """A shader that contains a caller's code always keeps its checks."""
    table = PipelineCache(port, trusted_shaders=trusts)
    tested_shader = replace(numbered_shader(1), is_in_bounds=in_bounds)
    caller_pipeline = run_blocking(table.get(tested_shader, set()))
    own_pipeline = run_blocking(table.get(tested_shader, set(), True))
    is_unchecked = trusts == "all" or (trusts == "proven" and in_bounds)
    assert port.pipelines[caller_pipeline].checked
    assert port.pipelines[own_pipeline].checked is not is_unchecked
    assert (own_pipeline == caller_pipeline) is not is_unchecked


@pytest.mark.parametrize("fused", [False, True])
def test_region_with_a_custom_op_is_checked(port: FakePort, fused: bool) -> None:
    """Built-in op records are trusted, but not an op registered under one of their
    names.
    """
    op = make_op("theirs_for_test")
    registry.register(op)
    try:
        engine = WebGpuEngine(port, trusted_shaders="all")
        graph = Graph("a region")
        x = graph.input("x", 4)
        negated = graph.neg(x)
        graph.set_outputs([graph.apply(op.name, negated) if fused else negated])
        run_blocking(engine.prepare(compile_graph(graph, engine.target)))
        assert [p.checked for p in port.pipelines.values()] == [fused]
        assert registry.is_builtin("neg")
        assert not registry.is_builtin(op.name)
    finally:
        registry.unregister(op.name)
    builtin_op = registry.get("neg")
    try:
        registry.register(make_op("neg"), replace=True)
        assert not registry.is_builtin("neg")
    finally:
        registry.register(builtin_op, replace=True)
    assert registry.is_builtin("neg")


def test_least_recently_used_are_evicted_first(port: FakePort) -> None:
    """Pipelines are evicted oldest first down to the bound; requests renew, use retains
    them.
    """
    table = PipelineCache(port, capacity=2)
    handles = [run_blocking(table.get(numbered_shader(k), set())) for k in range(4)]
    run_blocking(table.get(numbered_shader(0), set()))
    table.trim(lambda: {handles[1]})
    assert set(table.handles()) == {handles[0], handles[1]}
    assert port.live_handles == {handles[0], handles[1]}


def test_pipelines_in_use_may_exceed_the_bound(port: FakePort) -> None:
    """Pipelines in use are never evicted."""
    table = PipelineCache(port, capacity=1)
    handles = {run_blocking(table.get(numbered_shader(k), set())) for k in range(3)}
    table.trim(lambda: handles)
    assert len(table) == 3


def test_rejected_shader_is_not_cached() -> None:
    """The next attempt asks the driver again."""
    table = PipelineCache(open_fake_port(InjectedFailure("pipeline", "shader-refused")))
    with pytest.raises(ShaderRejected):
        run_blocking(table.get(numbered_shader(1), set()))
    assert len(table) == 0
    run_blocking(table.get(numbered_shader(1), set()))


def test_concurrent_compilations_share_one_pipeline(port: FakePort) -> None:
    """The second compilation of a shader at the same time is freed."""
    table = PipelineCache(port)
    first = table.get(numbered_shader(1), set())
    second = table.get(numbered_shader(1), set())
    # The first is interrupted after its look into the table: a browser's await.
    original = port.create_pipeline

    async def compile_after_second(*args: object, **options: Any) -> int:
        port.create_pipeline = original  # type: ignore[method-assign]
        await second
        return await original(*args)  # type: ignore[arg-type]

    port.create_pipeline = compile_after_second  # type: ignore[method-assign]
    handle = run_blocking(first)
    assert port.live_handles == {handle}


def test_long_shaders_count_for_more(port: FakePort) -> None:
    """Long shaders count for more: drivers keep megabytes for them, so fewer stay."""
    table = PipelineCache(port, capacity=8, max_bytes=2_000_000)
    for k in range(3):
        long = ComputeShader(numbered_shader(k).source * 500, ("write", "uniform"), ())
        run_blocking(table.get(long, set()))
        table.trim(set)
    assert len(table) == 1
    for k in range(4):
        run_blocking(table.get(numbered_shader(k), set()))
    table.trim(set)
    assert len(table) == 4
    assert port.live_handles == set(table.handles())


def test_requested_pipeline_is_claimed_before_eviction(port: FakePort) -> None:
    """A program under construction keeps its pipelines, even if another one trims the
    cache.
    """
    table, claimed = PipelineCache(port, capacity=1), set()
    first = run_blocking(table.get(numbered_shader(1), claimed))
    for k in range(2, 5):
        run_blocking(table.get(numbered_shader(k), set()))
    table.trim(lambda: claimed)
    assert first in table.handles()


def test_engines_of_one_port_share_pipelines(port: FakePort) -> None:
    """A shader is compiled once, however many derived engines are created and
    dropped.
    """
    engine, graph = WebGpuEngine(port), scaled_graph()
    for _ in range(20):
        for other in (engine.with_variant(""), engine.with_limits(tiny_limits())):
            run_blocking(prepare_graph(other, graph).close())
    assert port.created_counts["pipelines"] == len(port.pipelines)
    assert len(port.pipelines) <= 2


def test_no_engine_frees_pipelines_of_another(port: FakePort) -> None:
    """The bound covers the pipelines of all engines, and spares those that any of them
    needs.
    """
    table = PipelineCache(port, capacity=1)
    engine, other = (WebGpuEngine(port, pipelines=table) for _ in range(2))
    program = prepare_graph(engine, scaled_graph())
    for k in range(3):
        graph = Graph("another")
        graph.set_outputs([graph.input("x", 4) * 2.0 ** (k + 2)])
        run_blocking(prepare_graph(other, graph).close())
    run_blocking(prepare_graph(other, scaled_graph((3, 5))).close())
    assert program.pipelines <= port.live_handles
    assert len(table) <= 2 + len(program.pipelines)


@pytest.mark.parametrize("lengths", [range(1001, 1021, 2), range(1028, 1068, 4)])
def test_sizes_share_their_shader(lengths: range) -> None:
    """Each length has its own kernel plan, all with the same shader, which is stored
    once.
    """
    selector = KernelSelector(Hardware(Limits()))
    shaders = set()
    for n_samples in lengths:
        spec = spec_from_preset("rlx", n_samples, dtype=np.float32)
        graph = welch_graph((2, n_samples), spec, 4)
        request = node_signature(graph, graph.node(graph.outputs[0]))
        chosen = selector.select_kernel(*request)
        assert chosen is not None
        assert chosen.kernel_plan.dispatches == ()
        shaders |= {id(launch.shader) for launch in chosen.launches}
    assert len(shaders) == 1
