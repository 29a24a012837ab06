"""Tiny limits are met by folding, cutting and gathering, and seen to be met that way.

That the answers stay right is tested op by op (tests/ops); here the commands are looked
at, so that the limits cannot pass because nothing was large enough to meet them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.errors import LimitExceeded
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Command, Copy, Dispatch, Want
from rlxweb.limits import Limits, shrunk
from tests.agreement import Engine

pytestmark = pytest.mark.requires_wgpu


class RecordingPort:
    """A port that keeps what was submitted."""

    def __init__(self, port: Any) -> None:
        self.port = port
        self.commands: list[Command] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def submit(self, *lists: Sequence[Command]) -> None:
        for commands in lists:
            self.commands += commands
        self.port.submit(*lists)

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        every = [c.grid for c in self.commands if isinstance(c, Dispatch)]
        return [grid for grid in every if 0 not in grid]  # those only compile


def recorded(adapter: Want, limits: Limits) -> tuple[Engine, RecordingPort]:
    """An engine on a port that itself enforces the limits."""
    native = NativePort()
    drive(native.open(replace(adapter, limits=limits)))
    port = RecordingPort(native)
    return Engine("recorded", WebGpuBackend(port)), port  # type: ignore[arg-type]


def test_more_rows_than_a_dimension_takes_are_folded(adapter: Want) -> None:
    """65,537 workgroups and more in one dispatch at the usual limits."""
    one, port = recorded(adapter, replace(Want().limits))
    rows = 65_537 * 64
    graph = Graph()
    graph.set_outputs([graph.cast(graph.input("x", (rows,), "bool"), "i32")])
    x = np.arange(rows) % 3 == 0
    (out,) = one.run(graph, {"x": x})
    np.testing.assert_array_equal(out, x)
    assert len(port.grids) == 1
    assert max(port.grids[0]) <= 65_535
    drive(one.backend.close())


def test_a_binding_over_the_limit_is_cut(adapter: Want) -> None:
    """Pieces of at most 4 KiB, each folded under seven workgroups a side."""
    one, port = recorded(adapter, shrunk())
    graph = Graph()
    x = graph.input("x", (6000,))
    graph.set_outputs([graph.exp(x)])
    x = np.linspace(-1, 1, 6000, dtype=np.float32)
    (out,) = one.run(graph, {"x": x})
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-5)
    assert len(port.grids) >= 6
    for command in port.commands:
        if isinstance(command, Dispatch):
            assert all(span.nbytes <= 4096 for span in command.bindings)
            assert max(command.grid) <= 7
    assert any(grid[1] > 1 for grid in port.grids) or len(port.grids) > 6
    drive(one.backend.close())


def test_a_long_sum_is_carried_from_piece_to_piece(adapter: Want) -> None:
    """A sum of one output is carried through many pieces, each counted once."""
    one, port = recorded(adapter, shrunk())
    graph = Graph()
    graph.set_outputs([graph.sum(graph.input("x", (5000,), "i32"))])
    x = np.arange(5000, dtype=np.int32)
    (out,) = one.run(graph, {"x": x})
    assert out == x.sum()
    assert len(port.grids) >= 5
    drive(one.backend.close())


def test_too_many_operands_are_gathered(adapter: Want) -> None:
    """Four buffers on three bindings: two reads are copied side by side."""
    one, port = recorded(adapter, shrunk())
    graph = Graph()
    c, x, y = graph.input("c", (9,), "bool"), graph.input("x", 9), graph.input("y", 9)
    graph.set_outputs([graph.where(c, x, y)])
    feeds = {
        "c": np.arange(9) % 2 == 0,
        "x": np.arange(9, dtype=np.float32),
        "y": -np.arange(9, dtype=np.float32),
    }
    (out,) = one.run(graph, feeds)
    np.testing.assert_array_equal(out, np.where(feeds["c"], feeds["x"], feeds["y"]))
    assert sum(isinstance(c, Copy) for c in port.commands) == 3  # two, and the result
    drive(one.backend.close())


def test_a_session_can_pretend_to_have_less(adapter: Want) -> None:
    """`limits=` on the public Session: the same answer from a smaller device."""
    graph = Graph()
    x = graph.input("x", (40, 100))
    graph.set_outputs([graph.softmax(x * 2.0, axis=0)])
    fed = {"x": np.random.default_rng(0).uniform(-1, 1, (40, 100)).astype(np.float32)}
    label = adapter.backends[0]
    full = Session(label, adapter=adapter.name).compile(graph)
    small = Session(label, adapter=adapter.name, limits=shrunk()).compile(graph)
    np.testing.assert_allclose(full.run(fed)[0], small.run(fed)[0], rtol=1e-5)
    full.close()
    small.close()


def test_what_cannot_be_cut_is_refused_with_both_numbers(adapter: Want) -> None:
    """A buffer over the device's largest; nothing stays behind."""
    limits = replace(shrunk(), max_buffer_size=1 << 16)
    one, port = recorded(adapter, limits)
    graph = Graph()
    graph.set_outputs([graph.exp(graph.input("x", (1 << 15,)))])
    with pytest.raises(LimitExceeded, match=r"131,072 bytes; .* allows 65,536"):
        one.run(graph, {"x": np.zeros(1 << 15, np.float32)})
    assert port.live == set(one.backend.pipelines.values())
    drive(one.backend.close())
