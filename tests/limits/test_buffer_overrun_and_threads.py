"""Check the guard against kernels that write past their output, and runs by concurrent
threads.

What the guard watches is every op, in tests/ops/test_agreement.py. A thread count
changes no answer.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.gpu.port_protocol import AdapterRequest
from rlxweb.gpu.wgpu_port import WgpuPort
from tests.engines_under_test import GuardedPort
from tests.run_in_threads import run_concurrently

pytestmark = pytest.mark.requires_wgpu


def test_guard_detects_a_write_past_the_end(adapter: AdapterRequest) -> None:
    """The guard detects a write past the end; otherwise it would prove nothing in
    tests/ops.
    """
    port = WgpuPort()
    run_blocking(port.open(adapter))
    guarded = GuardedPort(port)
    handle = guarded.create_buffer(16, "storage")
    port.write(handle, 12, memoryview(bytes(8)))
    with pytest.raises(AssertionError, match="past its end"):
        guarded.destroy(handle)
    run_blocking(port.close())


def square_graph() -> Graph:
    graph = Graph("square")
    x = graph.input("x", (32, 32))
    graph.set_outputs([x @ x])
    return graph


def adapter_session(adapter: AdapterRequest) -> Session:
    return Session(adapter.backends[0], adapter=adapter.name)


def test_threads_with_their_own_graphs_get_correct_results(
    adapter: AdapterRequest,
) -> None:
    """Eight graphs on one session: compiled and run at the same time."""
    session = adapter_session(adapter)

    def work(k: int) -> None:
        compiled = session.compile(square_graph())
        x = np.eye(32, dtype=np.float32) * (k + 1)
        for _ in range(20):
            np.testing.assert_array_equal(compiled.run({"x": x})[0], x * (k + 1))
        compiled.close()

    run_concurrently([partial(work, k) for k in range(8)])


def test_threads_sharing_one_graph_get_correct_results(adapter: AdapterRequest) -> None:
    """Threads that share one graph each get their own result, every time."""
    compiled = adapter_session(adapter).compile(square_graph())

    def work(k: int) -> None:
        x = np.eye(32, dtype=np.float32) * (k + 1)
        for _ in range(20):
            np.testing.assert_array_equal(compiled.run({"x": x})[0], x * (k + 1))

    run_concurrently([partial(work, k) for k in range(8)])
    (out,) = compiled.run({"x": np.eye(32, dtype=np.float32)})
    np.testing.assert_array_equal(out, np.eye(32))
    compiled.close()
