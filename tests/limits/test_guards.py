"""No kernel writes beside its output, and a thread count changes no answer.

Guards (reliability.md L5): every storage buffer is made longer than asked for, the end
is filled with sentinels, and after the runs every sentinel must still be there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Usage, Want
from tests.agreement import Engine, dtypes_of
from tests.ops.ways import names, plain, through_views
from tests.threads import at_once

pytestmark = pytest.mark.requires_wgpu

SENTINEL = np.full(64, 0x2A2A_2A2A, np.uint32).tobytes()


class GuardedPort:
    """A port whose storage buffers end in sentinels, checked when they are freed."""

    def __init__(self, port: Any) -> None:
        self.port = port
        self.ends: dict[int, int] = {}
        self.checked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)

    def buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        if usage != "storage":
            return int(self.port.buffer(nbytes, usage, is_fed=is_fed))
        end = -(-nbytes // 4) * 4
        handle: int = self.port.buffer(end + len(SENTINEL), usage)
        self.port.write(handle, end, memoryview(SENTINEL))
        self.ends[handle] = end
        return handle

    def destroy(self, handle: int) -> None:
        end = self.ends.pop(handle, None)
        if end is not None:
            found = drive(self.port.read(handle, end, len(SENTINEL)))
            assert bytes(found) == SENTINEL, f"buffer {handle} was written past its end"
            self.checked += 1
        self.port.destroy(handle)


def test_no_kernel_writes_past_its_buffers(adapter: Want) -> None:
    """Every op, the smaller samples, plain and through views."""
    port = NativePort()
    drive(port.open(adapter))
    guarded = GuardedPort(port)
    one = Engine("guarded", WebGpuBackend(guarded))  # type: ignore[arg-type]
    for name in names():
        cases = [*plain(name)[:6], *through_views(name)[:2]]
        for case in cases:
            if case.is_small and dtypes_of(case.graph) <= one.backend.target.accepts:
                one.run(case.graph, case.feeds)
    assert guarded.checked > 500
    drive(one.backend.close())


def test_the_guard_itself_is_sharp(adapter: Want) -> None:
    """A write over the end is seen; otherwise the test above would prove nothing."""
    port = NativePort()
    drive(port.open(adapter))
    guarded = GuardedPort(port)
    handle = guarded.buffer(16, "storage")
    port.write(handle, 12, memoryview(bytes(8)))
    with pytest.raises(AssertionError, match="past its end"):
        guarded.destroy(handle)
    drive(port.close())


def square() -> Graph:
    graph = Graph("square")
    x = graph.input("x", (32, 32))
    graph.set_outputs([x @ x])
    return graph


def session_on(adapter: Want) -> Session:
    return Session(adapter.backends[0], adapter=adapter.name)


def test_threads_with_graphs_of_their_own_get_right_answers(adapter: Want) -> None:
    """Eight graphs on one session: compiled and run at the same time."""
    session = session_on(adapter)

    def work(k: int) -> None:
        made = session.compile(square())
        x = np.eye(32, dtype=np.float32) * (k + 1)
        for _ in range(20):
            np.testing.assert_array_equal(made.run({"x": x})[0], x * (k + 1))
        made.close()

    at_once([partial(work, k) for k in range(8)])


def test_threads_on_one_graph_take_turns(adapter: Want) -> None:
    """Each gets its own answer, every time."""
    made = session_on(adapter).compile(square())

    def work(k: int) -> None:
        x = np.eye(32, dtype=np.float32) * (k + 1)
        for _ in range(20):
            np.testing.assert_array_equal(made.run({"x": x})[0], x * (k + 1))

    at_once([partial(work, k) for k in range(8)])
    (out,) = made.run({"x": np.eye(32, dtype=np.float32)})
    np.testing.assert_array_equal(out, np.eye(32))
    made.close()
