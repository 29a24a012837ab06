"""Pipelines are kept, bounded and never taken from a living program."""

from __future__ import annotations

from rlxweb.backends.webgpu_pipelines import Pipelines
from rlxweb.gpu.drive import drive
from rlxweb.gpu.fake import FakePort
from rlxweb.gpu.port import Want
from rlxweb.kernels.launch import Shader


def shader(n: int) -> Shader:
    text = f"// {n}\n@compute @workgroup_size(1) fn main() {{}}"
    return Shader(text, ("write", "uniform"), ())


def opened() -> FakePort:
    port = FakePort()
    drive(port.open(Want()))
    return port


def test_a_shader_is_compiled_once() -> None:
    """The second asking gives the same handle."""
    port = opened()
    pipelines = Pipelines(port)
    first = drive(pipelines.get(shader(1)))
    assert drive(pipelines.get(shader(1))) == first
    assert port.live == {first}


def test_the_oldest_unused_go_first() -> None:
    """A handle that was asked for again, or is in use, stays."""
    port = opened()
    pipelines = Pipelines(port, capacity=2)
    a, b, c, d = (drive(pipelines.get(shader(n))) for n in range(4))
    assert drive(pipelines.get(shader(0))) == a
    pipelines.trim({b})
    assert port.live == {a, b}
    assert set(pipelines.values()) == {a, b}
    assert drive(pipelines.get(shader(2))) not in (c, d)


def test_nothing_is_freed_below_the_bound_or_in_use() -> None:
    """More pipelines than the bound may live while programs dispatch them."""
    port = opened()
    pipelines = Pipelines(port, capacity=1)
    handles = {drive(pipelines.get(shader(n))) for n in range(3)}
    pipelines.trim(handles)
    assert port.live == handles
