"""Exported folders, replayed by raw wgpu calls, match the desktop results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rlxweb import Graph, register_custom
from rlxweb.core.errors import (
    DTypeError,
    InputError,
    LimitExceeded,
    RlxError,
    Unsupported,
)
from rlxweb.core.limits import Limits, tiny_limits
from rlxweb.export.binary_array_file import BinaryFile
from rlxweb.export.browser_graph_compilation import record_graph
from rlxweb.export.plan_json import PlanSerializer
from rlxweb.export.required_limits import workgroup_size, workgroup_storage_nbytes
from rlxweb.export.web_export import ExportJob, write_export
from rlxweb.gpu.command_recording_port import RecordedPipeline, RecordingPort
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.js_bridge_conversion import webgpu_limit
from rlxweb.gpu.port_protocol import AdapterRequest, Dispatch
from rlxweb.ir.op import registry
from rlxweb.smoke.random_graphs import random_graph
from tests.engines_under_test import reference_outputs
from tests.exported_plan_replay import PlanReplay

Export = Callable[..., PlanReplay]
pytestmark = pytest.mark.requires_wgpu


def _random_floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.uniform(-2, 2, shape).astype("f4")


def _mlp() -> Graph:
    g = Graph("mlp")
    x, w, b = g.input("x", (16, 48)), g.param("w", (48, 32)), g.param("b", (32,))
    g.set_outputs([g.softmax(g.gelu(x @ w + b))])
    return g


def _reductions() -> Graph:
    g = Graph("reductions")
    x = g.input("x", (7, 300))
    g.set_outputs([g.sum(x, 0), g.max(x, 1), g.mean(x), x, x])
    return g


def _transform() -> Graph:
    g = Graph("transform")
    re, im = g.rfft(g.input("x", (5, 256)))
    g.set_outputs([re * re + im * im, re])
    return g


def _constants() -> Graph:
    g = Graph("constants")
    x = g.input("x", (3, 5))
    table = g.constant(np.arange(15, dtype="f4").reshape(3, 5))
    g.set_outputs([x * table, table, g.constant(np.array([True, False]))])
    return g


def _integers_and_booleans() -> Graph:
    g = Graph("kinds")
    i, u = g.input("i", (9,), "i32"), g.input("u", (9,), "u32")
    b = g.input("b", (9,), "bool")
    g.set_outputs([i + i, u * u, g.where(b, i, i * i), i < i + 1])
    return g


def _empty() -> Graph:
    g = Graph("empty")
    x, y = g.input("x", (0, 4)), g.input("y", (2,))
    g.set_outputs([x * x, g.sum(x, 0), y])
    return g


@pytest.mark.parametrize(
    "build", [_mlp, _reductions, _transform, _constants, _integers_and_booleans, _empty]
)
def test_a_folder_is_complete(
    build: Callable[[], Graph], export: Export, rng: np.random.Generator
) -> None:
    """A folder meets its own test vectors and gives NumPy's results for our inputs."""
    graph = build()
    params = {
        n: _random_floats(rng, *p.type.shape) for n, p in graph.named("param").items()
    }
    folder = export(graph, params, vectors=2)
    for index in (0, 1):
        folder.check(index)
        if folder.plan["software"]:
            PlanReplay(folder.folder, folder.plan["software"]).check(index)
    feeds = {
        name: (_random_floats(rng, *node.type.shape) * 4).astype(node.type.dtype.numpy)
        for name, node in graph.named("input").items()
    }
    got = list(folder.run(feeds).values())
    for output, want, index in zip(
        got, reference_outputs(graph, {**params, **feeds}), graph.outputs, strict=True
    ):
        assert output.shape == want.shape
        if graph.node(index).type.dtype.is_float:
            np.testing.assert_allclose(output, want, rtol=2e-5, atol=2e-4)
        else:
            np.testing.assert_array_equal(output, want)


@hypothesis.settings(max_examples=12)
@hypothesis.given(seed=st.integers(0, 100_000))
def test_random_graphs(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any random graph is exported, and the folder computes it."""
    case = random_graph(seed)
    folder = tmp_path_factory.mktemp("random") / "out"
    params = {n: case.feeds[n] for n in case.graph.named("param")}
    names = [f"y{index}" for index in range(len(case.graph.outputs))]
    write_export(ExportJob(case.graph, params, folder, outputs=names))
    page = PlanReplay(folder)
    page.check()
    got = page.run(case.feeds)
    assert case.output_errors([got[name] for name in names]) == []


@pytest.mark.parametrize("build", [_mlp, _transform, _constants])
def test_vectors_detect_wrong_weights(
    build: Callable[[], Graph], export: Export, rng: np.random.Generator
) -> None:
    """Test vectors detect weights that are 1 % off; uniforms are left alone."""
    graph = build()
    params = {
        n: _random_floats(rng, *p.type.shape) for n, p in graph.named("param").items()
    }
    page = export(graph, params)
    page.check()
    uses = [record["usage"] for record in page.plan["buffers"]]
    data = (page.folder / "weights.bin").read_bytes()
    for buffer, offset, start, nbytes in page.plan["weights"]["writes"]:
        if uses[buffer] == "storage":
            wrong = np.frombuffer(data, "f4", nbytes // 4, start) * np.float32(1.01)
            handle = page.buffers[buffer]
            page.device.queue.write_buffer(handle, offset, wrong.tobytes())
    with pytest.raises(AssertionError):
        page.check()


def test_an_out_of_range_index_raises(export: Export, rng: np.random.Generator) -> None:
    g = Graph("look_up")
    table, at = g.input("table", (5, 3)), g.input("at", (4,), "i32")
    g.set_outputs([g.gather(table, at, axis=0)])
    folder, rows = export(g), _random_floats(rng, 5, 3)
    folder.check()
    valid_indices = np.array([0, 4, 2, 2], "i4")
    got = folder.run({"table": rows, "at": valid_indices})
    np.testing.assert_array_equal(got["out0"], rows[valid_indices])
    with pytest.raises(IndexError):
        folder.run({"table": rows, "at": np.array([0, 5, 0, 0], "i4")})
    folder.run({"table": rows, "at": valid_indices})  # and the next run is clean


def test_a_plan_for_small_limits_is_split(export: Export) -> None:
    """A device with 4 KiB bindings gets chunks, and the results stay."""
    g = Graph("split")
    x, y = g.input("x", (40, 96)), g.input("y", (96, 70))
    g.set_outputs([g.softmax(x @ y)])
    unsplit_plan, split = export(g).plan, export(g, limits=tiny_limits())
    split.check()
    assert len(split.plan["commands"]) > len(unsplit_plan["commands"])
    assert split.plan["limits"]["maxStorageBufferBindingSize"] <= 4096
    assert split.plan["limits"]["maxStorageBuffersPerShaderStage"] <= 3


def test_required_limits_are_minimal(rng: np.random.Generator) -> None:
    """A plan runs within its required limits, and within none that is any smaller."""
    g = _mlp()
    params = {
        n: _random_floats(rng, *p.type.shape) for n, p in g.named("param").items()
    }
    trace = record_graph(g, params)
    required = PlanSerializer(trace, ["y"], BinaryFile(), {}).as_json("mlp", "0")[
        "limits"
    ]
    field_limits = {
        name: required[webgpu_limit(name)]
        for name in Limits.__dataclass_fields__
        if webgpu_limit(name) in required
    }
    _check_with_limits(trace, Limits(**field_limits))
    for name in field_limits:
        if name.startswith("max_") and name not in UNCHECKED_LIMITS:
            with pytest.raises(LimitExceeded):
                _check_with_limits(
                    trace,
                    replace(Limits(**field_limits), **{name: field_limits[name] - 1}),
                )


UNCHECKED_LIMITS = {"max_compute_workgroup_storage_size"}  # only a driver knows


def _check_with_limits(trace: Any, limits: Limits) -> None:
    """Check all of a plan on a port with these limits."""
    port = RecordingPort(limits)
    run_blocking(port.open(AdapterRequest(limits=limits)))
    new_handles = {
        old: port.create_buffer(b.nbytes, b.usage)
        for old, b in trace.port.buffers.items()
    }
    for old, entry in trace.port.pipelines.items():
        new_handles[old] = run_blocking(
            port.create_pipeline(entry.source, entry.layout, entry.constants)
        )
    for entry in trace.program.commands:
        if isinstance(entry, Dispatch):
            spans = tuple(
                replace(s, handle=new_handles[s.handle]) for s in entry.bindings
            )
            port.check_command(
                replace(entry, pipeline=new_handles[entry.pipeline], bindings=spans)
            )


def test_workgroup_size_and_memory_are_read_from_the_shader() -> None:
    text = """
    override WG: u32 = 64u;
    override ROOM: u32 = 10;
    alias F = f32;
    alias V = vec3<F>;
    // var<workgroup> not_this: array<f32, 9999>;
    var<workgroup> a: array<V, ROOM>;
    var<workgroup> b: atomic<u32>;
    var<workgroup> c: array<vec4<f32>, 3>;
    @compute @workgroup_size(WG, 2)
    fn main() {}
    """
    pipeline = RecordedPipeline(text, ("write",), {"WG": 32})
    assert workgroup_size(pipeline) == (32, 2, 1)
    assert (
        workgroup_storage_nbytes(pipeline) == 160 + 16 + 48
    )  # a vec3 takes the room of four
    unsupported_pipeline = RecordedPipeline(
        "var<workgroup> m: mat4x4<f32>;", ("write",), {}
    )
    assert workgroup_size(unsupported_pipeline) is None
    assert workgroup_storage_nbytes(unsupported_pipeline) is None


def test_the_recording_port_acts_like_a_browser() -> None:
    port = RecordingPort()
    facts = run_blocking(port.open(AdapterRequest()))
    assert (facts.backend, facts.software, facts.features) == ("webgpu", False, set())
    assert facts.limits == Limits()
    handle = port.create_buffer(10, "storage")
    port.write(handle, 0, memoryview(b"12345"))
    assert [bytes(w.data) + w.tail for w in port.writes] == [b"12345\0\0\0"]
    with pytest.raises(LimitExceeded):
        port.create_buffer(1 << 30, "storage")
    with pytest.raises(Unsupported, match="records commands but does not execute"):
        run_blocking(port.read(handle, 0, 4))


# --- what is refused ----------------------------------------------------------------


def test_params_without_a_value_are_named(export: Export) -> None:
    with pytest.raises(
        InputError, match="params 'w', 'b' have no value; 2 of 2 params "
    ):
        export(_mlp())


def test_dtypes_missing_in_wgsl_are_refused_with_the_node(export: Export) -> None:
    g = Graph("wide")
    x = g.input("x", (3,), "f64")
    g.set_outputs([x * x])
    with pytest.raises(
        DTypeError, match=r"export 'wide'.* mul\(.*has no f64 support.*cast"
    ):
        export(g)
    g = Graph("doubles")
    g.set_outputs([g.cast(g.input("x", (3,), "f64"), "f32")])
    with pytest.raises(
        DTypeError, match=r"export 'doubles': input 'x'.* does not support f64; cast"
    ):
        export(g)
    g.set_outputs([g.cast(g.input("n", (3,), "bool"), "f64")])
    with pytest.raises(DTypeError, match="output 0: a page does not support f64; cast"):
        export(g)
    g = Graph("half")
    h = g.input("h", (3,), "f16")
    g.set_outputs([h + h])
    with pytest.raises(DTypeError, match=r"features=\('shader-f16',\)"):
        export(g)


def test_64_bit_integers_have_bounds_and_bigint_arrays(tmp_path: Path) -> None:
    """Inputs may be narrower; test vectors are stored in the buffers' layout."""
    g = Graph("long")
    g.set_outputs([g.input("i", (3,), "i64") * 1000])
    write_export(ExportJob(g, {}, tmp_path, name="long"))
    plan = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    (input_entry,), (output_entry,) = plan["inputs"].values(), plan["outputs"].values()
    assert (input_entry["dtype"], input_entry["nbytes"], output_entry["nbytes"]) == (
        "i64",
        12,
        12,
    )
    assert input_entry["between"] == [-(2**21) + 1, 2**21 - 1]
    types = (tmp_path / "long.d.ts").read_text("utf-8")
    assert "  i: BigInt64Array | Int32Array;" in types
    assert "  out0: BigInt64Array;" in types
    assert plan["vectors"]["nbytes"] <= 2 * 16


def test_float16_is_a_required_feature(export: Export) -> None:
    g = Graph("half")
    h = g.input("h", (5,), "f16")
    g.set_outputs([h + h])
    folder = export(g, features=("shader-f16",))
    assert folder.plan["features"] == ["shader-f16"]
    folder.check()


def test_a_custom_op_needs_wgsl(export: Export) -> None:
    def double(xp: Any, attrs: Any, x: Any) -> Any:
        return x + x

    try:
        for name, wgsl in (("export_host_only", None), ("export_doubled", "x + x")):
            register_custom(name, arity=1, reference=double, wgsl=wgsl)
        for name in ("export_doubled", "export_host_only"):
            g = Graph("own")
            g.set_outputs([g.apply(name, g.input("x", (4,)))])
            if name == "export_doubled":
                export(g).check()
            else:
                with pytest.raises(
                    RlxError, match=f"{name}.*or provide WGSL for the op"
                ):
                    export(g)
    finally:
        for name in ("export_host_only", "export_doubled"):
            if name in registry:
                registry.unregister(name)


def test_a_too_large_input_reports_both_numbers(export: Export) -> None:
    g = Graph("large")
    x = g.input("x", (1 << 27,))
    g.set_outputs([x * 2])
    with pytest.raises(
        LimitExceeded, match=r"536,870,912.*268,435,456.*pass larger `limits`"
    ):
        export(g, vectors=0)


def test_dtypes_unknown_to_a_page_are_refused(export: Export) -> None:
    """A dtype unknown to pages is refused with its node, in an output too."""
    g = Graph("small")
    g.set_outputs([g.cast(g.input("x", (3,)), "u8")])
    with pytest.raises(
        DTypeError, match=r"cast.*: \[3\] u8: a page does not support u8"
    ):
        export(g)
