"""Exported folders, run by raw wgpu calls, give the numbers of the desktop."""

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
from rlxweb.errors import DTypeError, InputError, LimitExceeded, RlxError, Unsupported
from rlxweb.export.needs import shared_bytes, workgroup
from rlxweb.export.plan_json import PlanText
from rlxweb.export.recorded import recorded
from rlxweb.export.weights import Weights
from rlxweb.export.written import Job, write_export
from rlxweb.gpu.browser_words import their_limit
from rlxweb.gpu.drive import drive
from rlxweb.gpu.port import Dispatch, Want
from rlxweb.gpu.recording import RecordedPipeline, RecordingPort
from rlxweb.ir.op import registry
from rlxweb.limits import Limits, shrunk
from rlxweb.smoke.random_graphs import grown_graph
from tests.agreement import oracle
from tests.plan_replay import Replay

Export = Callable[..., Replay]
pytestmark = pytest.mark.requires_wgpu


def _real(rng: np.random.Generator, *shape: int) -> Any:
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


def _kinds() -> Graph:
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
    "build", [_mlp, _reductions, _transform, _constants, _kinds, _empty]
)
def test_a_folder_is_complete(
    build: Callable[[], Graph], export: Export, rng: np.random.Generator
) -> None:
    """A folder meets its own test vectors and gives NumPy's results for our inputs."""
    graph = build()
    params = {n: _real(rng, *p.type.shape) for n, p in graph.named("param").items()}
    folder = export(graph, params, cases=2)
    for at in (0, 1):
        folder.check(at)
        if folder.plan["software"]:
            Replay(folder.folder, folder.plan["software"]).check(at)
    feeds = {
        name: (_real(rng, *node.type.shape) * 4).astype(node.type.dtype.numpy)
        for name, node in graph.named("input").items()
    }
    got = list(folder.run(feeds).values())
    for have, want, at in zip(
        got, oracle(graph, {**params, **feeds}), graph.outputs, strict=True
    ):
        assert have.shape == want.shape
        if graph.node(at).type.dtype.is_float:
            np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-4)
        else:
            np.testing.assert_array_equal(have, want)


@hypothesis.settings(max_examples=12)
@hypothesis.given(seed=st.integers(0, 100_000))
def test_random_graphs(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any graph that grows is exported, and the folder computes it."""
    made = grown_graph(seed)
    folder = tmp_path_factory.mktemp("random") / "out"
    params = {n: made.feeds[n] for n in made.graph.named("param")}
    names = [f"y{at}" for at in range(len(made.graph.outputs))]
    write_export(Job(made.graph, params, folder, outputs=names))
    page = Replay(folder)
    page.check()
    got = page.run(made.feeds)
    assert made.misses([got[name] for name in names]) == []


@pytest.mark.parametrize("build", [_mlp, _transform, _constants])
def test_vectors_notice_what_is_wrong(
    build: Callable[[], Graph], export: Export, rng: np.random.Generator
) -> None:
    """Vectors notice weights that are a hundredth off, uniforms left alone."""
    graph = build()
    params = {n: _real(rng, *p.type.shape) for n, p in graph.named("param").items()}
    page = export(graph, params)
    page.check()
    uses = [one["usage"] for one in page.plan["buffers"]]
    data = (page.folder / "weights.bin").read_bytes()
    for buffer, offset, start, nbytes in page.plan["weights"]["writes"]:
        if uses[buffer] == "storage":
            wrong = np.frombuffer(data, "f4", nbytes // 4, start) * np.float32(1.01)
            handle = page.buffers[buffer]
            page.device.queue.write_buffer(handle, offset, wrong.tobytes())
    with pytest.raises(AssertionError):
        page.check()


def test_an_index_outside_raises_the_flag(
    export: Export, rng: np.random.Generator
) -> None:
    g = Graph("look_up")
    table, at = g.input("table", (5, 3)), g.input("at", (4,), "i32")
    g.set_outputs([g.gather(table, at, axis=0)])
    folder, rows = export(g), _real(rng, 5, 3)
    folder.check()
    right = np.array([0, 4, 2, 2], "i4")
    got = folder.run({"table": rows, "at": right})
    np.testing.assert_array_equal(got["out0"], rows[right])
    with pytest.raises(IndexError):
        folder.run({"table": rows, "at": np.array([0, 5, 0, 0], "i4")})
    folder.run({"table": rows, "at": right})  # and the next run is clean


def test_a_plan_for_small_limits_is_split(export: Export) -> None:
    """A device of 4 KiB bindings gets pieces, and the numbers stay."""
    g = Graph("split")
    x, y = g.input("x", (40, 96)), g.input("y", (96, 70))
    g.set_outputs([g.softmax(x @ y)])
    whole, split = export(g).plan, export(g, limits=shrunk())
    split.check()
    assert len(split.plan["commands"]) > len(whole["commands"])
    assert split.plan["limits"]["maxStorageBufferBindingSize"] <= 4096
    assert split.plan["limits"]["maxStorageBuffersPerShaderStage"] <= 3


def test_the_least_limits_are_least(rng: np.random.Generator) -> None:
    """A plan keeps to its least limits, and to none that is any smaller."""
    g = _mlp()
    params = {n: _real(rng, *p.type.shape) for n, p in g.named("param").items()}
    made = recorded(g, params)
    found = PlanText(made, ["y"], Weights(), {}).as_json("mlp", "0")["limits"]
    ours = {
        name: found[their_limit(name)]
        for name in Limits.__dataclass_fields__
        if their_limit(name) in found
    }
    _rechecked(made, Limits(**ours))
    for name in ours:
        if name.startswith("max_") and name not in NOT_CHECKED:
            with pytest.raises(LimitExceeded):
                _rechecked(made, replace(Limits(**ours), **{name: ours[name] - 1}))


NOT_CHECKED = {"max_compute_workgroup_storage_size"}  # only a driver knows


def _rechecked(made: Any, limits: Limits) -> None:
    """Check all of a plan on a port of those limits."""
    port = RecordingPort(limits)
    drive(port.open(Want(limits=limits)))
    new = {old: port.buffer(b.nbytes, b.usage) for old, b in made.port.buffers.items()}
    for old, one in made.port.pipelines.items():
        new[old] = drive(port.pipeline(one.source, one.layout, one.constants))
    for one in made.program.commands:
        if isinstance(one, Dispatch):
            spans = tuple(replace(s, handle=new[s.handle]) for s in one.bindings)
            port.check(replace(one, pipeline=new[one.pipeline], bindings=spans))


def test_what_a_shader_tells_of_its_needs() -> None:
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
    one = RecordedPipeline(text, ("write",), {"WG": 32})
    assert workgroup(one) == (32, 2, 1)
    assert shared_bytes(one) == 160 + 16 + 48  # a vec3 takes the room of four
    strange = RecordedPipeline("var<workgroup> m: mat4x4<f32>;", ("write",), {})
    assert workgroup(strange) is None
    assert shared_bytes(strange) is None


def test_the_recorder_is_a_browser_without_an_answer() -> None:
    port = RecordingPort()
    facts = drive(port.open(Want()))
    assert (facts.backend, facts.software, facts.features) == ("webgpu", False, set())
    assert facts.limits == Limits()
    handle = port.buffer(10, "storage")
    port.write(handle, 0, memoryview(b"12345"))
    assert [bytes(w.data) + w.tail for w in port.writes] == [b"12345\0\0\0"]
    with pytest.raises(LimitExceeded):
        port.buffer(1 << 30, "storage")
    with pytest.raises(Unsupported, match="records and computes nothing"):
        drive(port.read(handle, 0, 4))


# --- what is refused ----------------------------------------------------------------


def test_params_without_a_value_are_named(export: Export) -> None:
    with pytest.raises(InputError, match="'w', 'b' has no value; 2 of 2 params unset"):
        export(_mlp())


def test_what_wgsl_has_not_is_refused_with_its_node(export: Export) -> None:
    g = Graph("wide")
    x = g.input("x", (3,), "f64")
    g.set_outputs([x * x])
    with pytest.raises(DTypeError, match=r"export 'wide'.* mul\(.*has no f64.*cast"):
        export(g)
    g = Graph("doubles")
    g.set_outputs([g.cast(g.input("x", (3,), "f64"), "f32")])
    with pytest.raises(DTypeError, match=r"export 'doubles': input 'x'.* no f64; cast"):
        export(g)
    g.set_outputs([g.cast(g.input("n", (3,), "bool"), "f64")])
    with pytest.raises(DTypeError, match="output 0: a page has no f64; cast"):
        export(g)
    g = Graph("half")
    h = g.input("h", (3,), "f16")
    g.set_outputs([h + h])
    with pytest.raises(DTypeError, match=r"features=\('shader-f16',\)"):
        export(g)


def test_numbers_of_64_bits_have_bounds_and_arrays_of_bigints(tmp_path: Path) -> None:
    """What goes in may be narrower; vectors lie as buffers hold them."""
    g = Graph("long")
    g.set_outputs([g.input("i", (3,), "i64") * 1000])
    write_export(Job(g, {}, tmp_path, name="long"))
    plan = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    (taken,), (given,) = plan["inputs"].values(), plan["outputs"].values()
    assert (taken["dtype"], taken["nbytes"], given["nbytes"]) == ("i64", 12, 12)
    assert taken["between"] == [-(2**21) + 1, 2**21 - 1]
    types = (tmp_path / "long.d.ts").read_text("utf-8")
    assert "  i: BigInt64Array | Int32Array;" in types
    assert "  out0: BigInt64Array;" in types
    assert plan["vectors"]["nbytes"] <= 2 * 16


def test_half_floats_are_a_stated_feature(export: Export) -> None:
    g = Graph("half")
    h = g.input("h", (5,), "f16")
    g.set_outputs([h + h])
    folder = export(g, features=("shader-f16",))
    assert folder.plan["features"] == ["shader-f16"]
    folder.check()


def test_an_op_of_the_callers_needs_wgsl(export: Export) -> None:
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
                with pytest.raises(RlxError, match=f"{name}.*or give the op WGSL"):
                    export(g)
    finally:
        for name in ("export_host_only", "export_doubled"):
            if name in registry:
                registry.unregister(name)


def test_too_large_an_input_says_both_numbers(export: Export) -> None:
    g = Graph("large")
    x = g.input("x", (1 << 27,))
    g.set_outputs([x * 2])
    with pytest.raises(
        LimitExceeded, match=r"536,870,912.*268,435,456.*raise the limits"
    ):
        export(g, cases=0)


def test_types_a_page_does_not_know_are_refused(export: Export) -> None:
    """A type that pages do not know is refused with the node, in an output too."""
    g = Graph("small")
    g.set_outputs([g.cast(g.input("x", (3,)), "u8")])
    with pytest.raises(DTypeError, match=r"cast.*: \[3\] u8: it is u8, which"):
        export(g)
