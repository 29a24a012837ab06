"""The bounded table of pipelines."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.backends.webgpu_pipelines import Pipelines
from rlxweb.backends.webgpu_recipes import Recipes
from rlxweb.cost.graph_work import asked_of
from rlxweb.errors import ShaderRejected
from rlxweb.gpu.drive import drive
from rlxweb.host.welch_graph import welch_graph
from rlxweb.kernels.launch import Shader
from rlxweb.limits import Limits
from rlxweb.recipes.variants import Hardware
from rlxweb.signal.presets import from_preset
from tests.fake_port import Failure, FakePort
from tests.ports import fake


def shader(number: int) -> Shader:
    return Shader(f"fn main() {{}} // {number}", ("write", "uniform"), ())


@pytest.fixture
def port() -> FakePort:
    return fake()


def test_a_shader_is_compiled_once(port: FakePort) -> None:
    """Asked again it is the same handle; other constants are another pipeline."""
    table = Pipelines(port)
    first = drive(table.get(shader(1), set()))
    assert drive(table.get(shader(1), set())) == first
    other = Shader(shader(1).source, ("write", "uniform"), (("WG", 32),))
    assert drive(table.get(other, set())) != first
    assert port.created["pipelines"] == 2


def test_the_oldest_unused_go_first(port: FakePort) -> None:
    """Down to the bound; asking renews; what is in use stays."""
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
    """Whoever comes second gives its copy back."""
    table = Pipelines(port)
    one, two = table.get(shader(1), set()), table.get(shader(1), set())
    # The first is interrupted after its look into the table: a browser's await.
    original = port.pipeline

    async def meanwhile(*args: object) -> int:
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


def test_sizes_share_the_text_of_their_shader() -> None:
    """A recipe per length, each with the same shader, which is held once."""
    recipes = Recipes(Hardware(True, Limits()))
    shaders = set()
    for n_samples in range(1000, 1020):
        spec = from_preset("rlx", n_samples, dtype=np.float32)
        graph = welch_graph((2, n_samples), spec, 4)
        asked = asked_of(graph, graph.node(graph.outputs[0]))
        chosen = recipes.choose(*asked)
        assert chosen is not None
        assert chosen.recipe.calls == ()
        shaders |= {id(launch.shader) for launch in chosen.launches}
    assert len(shaders) == 1
