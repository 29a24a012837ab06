"""The bounded table of pipelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.backends.webgpu_pipelines import Pipelines, Trusts
from rlxweb.backends.webgpu_recipes import Recipes
from rlxweb.compile.pipeline import compile_graph
from rlxweb.cost.graph_work import asked_of
from rlxweb.errors import ShaderRejected
from rlxweb.gpu.drive import drive
from rlxweb.host.welch_graph import welch_graph
from rlxweb.ir.graph import Graph
from rlxweb.ir.op import registry
from rlxweb.kernels.launch import Shader
from rlxweb.limits import Limits, shrunk
from rlxweb.recipes.variants import Hardware
from rlxweb.signal.presets import from_preset
from tests.fake_port import Failure, FakePort
from tests.made_op import made_op
from tests.ports import fake, prepared, scaled


def shader(number: int) -> Shader:
    return Shader(f"fn main() {{}} // {number}", ("write", "uniform"), ())


@pytest.fixture
def port() -> FakePort:
    return fake()


def test_a_shader_is_compiled_once(port: FakePort) -> None:
    """A shader asked for again is the same handle; other constants are another one."""
    table = Pipelines(port)
    first = drive(table.get(shader(1), set()))
    assert drive(table.get(shader(1), set())) == first
    other = Shader(shader(1).source, ("write", "uniform"), (("WG", 32),))
    assert drive(table.get(other, set())) != first
    assert port.created["pipelines"] == 2


@pytest.mark.parametrize("in_bounds", [False, True])
@pytest.mark.parametrize("trusts", ["none", "proven", "all"])
def test_only_our_own_shaders_are_ever_trusted(
    port: FakePort, trusts: Trusts, in_bounds: bool
) -> None:
    """A shader that a caller had a hand in keeps its checks, at any time."""
    table = Pipelines(port, trusts=trusts)
    one = replace(shader(1), in_bounds=in_bounds)
    theirs = drive(table.get(one, set()))
    ours = drive(table.get(one, set(), True))
    trusted = trusts == "all" or (trusts == "proven" and in_bounds)
    assert port.pipelines[theirs].checked
    assert port.pipelines[ours].checked is not trusted
    assert (ours == theirs) is not trusted


@pytest.mark.parametrize("fused", [False, True])
def test_a_region_with_an_op_of_a_caller_is_checked(
    port: FakePort, fused: bool
) -> None:
    """The vocabulary's records are trusted, not whatever has one of their names."""
    op = made_op("theirs_for_test")
    registry.register(op)
    try:
        backend = WebGpuBackend(port, trusts="all")
        graph = Graph("a region")
        x = graph.input("x", 4)
        made = graph.neg(x)
        graph.set_outputs([graph.apply(op.name, made) if fused else made])
        drive(backend.prepare(compile_graph(graph, backend.target)))
        assert [p.checked for p in port.pipelines.values()] == [fused]
        assert registry.is_ours("neg")
        assert not registry.is_ours(op.name)
    finally:
        registry.unregister(op.name)
    taken = registry.get("neg")
    try:
        registry.register(made_op("neg"), replace=True)
        assert not registry.is_ours("neg")
    finally:
        registry.register(taken, replace=True)
    assert registry.is_ours("neg")


def test_the_oldest_unused_go_first(port: FakePort) -> None:
    """Pipelines go oldest first, down to the bound; asking renews, use keeps them."""
    table = Pipelines(port, capacity=2)
    handles = [drive(table.get(shader(k), set())) for k in range(4)]
    drive(table.get(shader(0), set()))
    table.trim(lambda: {handles[1]})
    assert set(table.values()) == {handles[0], handles[1]}
    assert port.live == {handles[0], handles[1]}


def test_more_in_use_than_the_bound_all_stay(port: FakePort) -> None:
    """A bound is no reason to break a program."""
    table = Pipelines(port, capacity=1)
    handles = {drive(table.get(shader(k), set())) for k in range(3)}
    table.trim(lambda: handles)
    assert len(table) == 3


def test_a_refused_shader_is_not_remembered() -> None:
    """The next attempt asks the driver again."""
    table = Pipelines(fake(Failure("pipeline", "shader-refused")))
    with pytest.raises(ShaderRejected):
        drive(table.get(shader(1), set()))
    assert len(table) == 0
    drive(table.get(shader(1), set()))


def test_two_that_compile_the_same_shader_share_one(port: FakePort) -> None:
    """The second compilation of a shader at the same time is freed."""
    table = Pipelines(port)
    one, two = table.get(shader(1), set()), table.get(shader(1), set())
    # The first is interrupted after its look into the table: a browser's await.
    original = port.pipeline

    async def meanwhile(*args: object, **how: Any) -> int:
        port.pipeline = original  # type: ignore[method-assign]
        await two
        return await original(*args)  # type: ignore[arg-type]

    port.pipeline = meanwhile  # type: ignore[method-assign]
    handle = drive(one)
    assert port.live == {handle}


def test_long_shaders_count_for_more(port: FakePort) -> None:
    """Drivers keep megabytes of them; of short ones many may stay."""
    table = Pipelines(port, capacity=8, most_bytes=2_000_000)
    for k in range(3):
        long = Shader(shader(k).source * 500, ("write", "uniform"), ())
        drive(table.get(long, set()))
        table.trim(set)
    assert len(table) == 1
    for k in range(4):
        drive(table.get(shader(k), set()))
    table.trim(set)
    assert len(table) == 4
    assert port.live == set(table.values())


def test_what_was_asked_for_is_claimed_before_it_can_go(port: FakePort) -> None:
    """A program under construction keeps its pipelines, whoever trims meanwhile."""
    table, claimed = Pipelines(port, capacity=1), set()
    first = drive(table.get(shader(1), claimed))
    for k in range(2, 5):
        drive(table.get(shader(k), set()))
    table.trim(lambda: claimed)
    assert first in table.values()


def test_engines_of_one_port_share_what_they_compile(port: FakePort) -> None:
    """However many are forced or limited and dropped, a shader is compiled once."""
    backend, graph = WebGpuBackend(port), scaled()
    for _ in range(20):
        for other in (backend.forced(""), backend.limited(shrunk())):
            drive(other.release(prepared(other, graph)))
    assert port.created["pipelines"] == len(port.pipelines)
    assert len(port.pipelines) <= 2


def test_no_engine_frees_what_another_dispatches(port: FakePort) -> None:
    """The bound is for what all of them made, and spares what one of them needs."""
    table = Pipelines(port, capacity=1)
    one, other = (WebGpuBackend(port, pipelines=table) for _ in range(2))
    kept = prepared(one, scaled())
    for k in range(3):
        graph = Graph("another")
        graph.set_outputs([graph.input("x", 4) * 2.0 ** (k + 2)])
        drive(other.release(prepared(other, graph)))
    drive(other.release(prepared(other, scaled((3, 5)))))
    assert kept.pipelines <= port.live
    assert len(table) <= 2 + len(kept.pipelines)


@pytest.mark.parametrize("lengths", [range(1001, 1021, 2), range(1028, 1068, 4)])
def test_sizes_share_the_text_of_their_shader(lengths: range) -> None:
    """A recipe per length, each with the same shader, which is held once."""
    recipes = Recipes(Hardware(Limits()))
    shaders = set()
    for n_samples in lengths:
        spec = from_preset("rlx", n_samples, dtype=np.float32)
        graph = welch_graph((2, n_samples), spec, 4)
        asked = asked_of(graph, graph.node(graph.outputs[0]))
        chosen = recipes.choose(*asked)
        assert chosen is not None
        assert chosen.recipe.calls == ()
        shaders |= {id(launch.shader) for launch in chosen.launches}
    assert len(shaders) == 1
