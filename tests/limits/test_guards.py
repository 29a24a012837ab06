"""The guard against kernels that write beside their output, and threads at once.

What the guard watches is every op, in tests/ops/test_agreement.py. A thread count
changes no answer.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.gpu.drive import drive
from rlxweb.gpu.native import NativePort
from rlxweb.gpu.port import Want
from tests.agreement import GuardedPort
from tests.threads import at_once

pytestmark = pytest.mark.requires_wgpu


def test_the_guard_itself_is_sharp(adapter: Want) -> None:
    """A write over the end is seen; else the guard of tests/ops would prove nothing."""
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
    """Threads that share one graph each get their own answer, every time."""
    made = session_on(adapter).compile(square())

    def work(k: int) -> None:
        x = np.eye(32, dtype=np.float32) * (k + 1)
        for _ in range(20):
            np.testing.assert_array_equal(made.run({"x": x})[0], x * (k + 1))

    at_once([partial(work, k) for k in range(8)])
    (out,) = made.run({"x": np.eye(32, dtype=np.float32)})
    np.testing.assert_array_equal(out, np.eye(32))
    made.close()
