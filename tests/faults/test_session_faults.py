"""Session life cycle in which every port call fails once in every way a device fails.

The standard workload (open, compile, set, run, another shape, close) makes some dozens
of port calls. For each of them and each kind of failure: the answer is right or the
exception is the kind's own; the next session's answer is right; no handle stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from rlxweb import Dim, Graph, Session
from rlxweb.core.errors import AdapterMissing, DeviceLost, OutOfMemory, ShaderRejected
from rlxweb.engines.pool import pool
from rlxweb.engines.registry import ROWS, Row
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.port_protocol import AdapterRequest
from tests.fake_gpu_port import (
    FAILING_VERBS,
    FAILURE_KINDS,
    FailureKind,
    FakePort,
    InjectedFailure,
)
from tests.gpu_ports import ERROR_TYPES, compute_scaled, shader_source
from tests.run_in_threads import run_concurrently


def make_layer(size: int) -> Graph:
    graph = Graph("layer")
    x, w = graph.input("x", (size, 4)), graph.param("w", (size, 4))
    graph.set_outputs([x * 2.0 + w, x])
    return graph


def make_dynamic_layer() -> Graph:
    """Build the same layer for any number of rows, with one param for all."""
    graph = Graph("layer")
    x, w = graph.input("x", (Dim("n"), 4)), graph.param("w", (4,))
    graph.set_outputs([x * 2.0 + w, x])
    return graph


def compute_rows(views: Sequence[memoryview], *_: object) -> None:
    """Compute the region of the dynamic layer."""
    first, second, out = (np.frombuffer(v, np.float32) for v in views[:3])
    w, x = sorted((first, second), key=len)
    out[:] = (x.reshape(-1, 4) * 2 + w[:4]).reshape(-1)


LAYER_SOURCE = shader_source(make_layer(3))
PYTHON_KERNELS = {
    LAYER_SOURCE: compute_scaled,
    shader_source(make_dynamic_layer().bind(n=3)): compute_rows,
}


class FakeVulkan:
    """Replacement of device 'vulkan' that opens fake ports: the first fails as
    specified, later ones work.
    """

    def __init__(self, *failures: InjectedFailure) -> None:
        self.failures = list(failures)
        self.ports: list[FakePort] = []

    async def open(self, adapter: str) -> WebGpuEngine:
        port = FakePort(self.failures if not self.ports else (), kernels=PYTHON_KERNELS)
        self.ports.append(port)
        await port.open(AdapterRequest())
        return WebGpuEngine(port)


@pytest.fixture
def fake_vulkan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeVulkan]:
    def make(*failures: InjectedFailure) -> FakeVulkan:
        vulkan = FakeVulkan(*failures)
        monkeypatch.setitem(ROWS, "vulkan", Row(vulkan.open))
        # The one that every room asks: no fake is left in it for other tests to find.
        for cache_name in (
            "_engines",
            "_limited_engines",
            "_failures",
            "_opening_ns",
        ):
            monkeypatch.setattr(pool, cache_name, {})
        return vulkan

    return make


def set_ones(compiled: Any, size: int = 3) -> Any:
    """Set the layer's param so that it adds 1; return the compiled layer."""
    compiled.set_param("w", np.ones((size, 4), np.float32))
    return compiled


def check_run(size: int, seed: int, compiled: Any) -> None:
    """Run once and check the result."""
    x = np.full((size, 4), seed, np.float32)
    y, passed_through = compiled.run({"x": x})
    np.testing.assert_array_equal(y, x * 2 + 1)
    np.testing.assert_array_equal(passed_through, x)


def workload() -> str:
    """Open, compile, set, run three times, another shape, close; return the attempts as
    text.
    """
    session, report = Session("vulkan"), ""
    for size in (3, 5):
        compiled = session.compile(make_layer(size))
        try:
            set_ones(compiled, size)
            for seed in range(3):
                check_run(size, seed, compiled)
            report += " ".join(map(str, compiled.attempts))
        finally:
            compiled.close()
    session.close()
    return report


def dynamic_workload() -> str:
    """Run the workload with one compiled graph whose bindings share what they can."""
    session, report = Session("vulkan"), ""
    compiled = session.compile(make_dynamic_layer())
    try:
        compiled.set_param("w", np.ones(4, np.float32))
        for seed, size in enumerate((3, 5, 3, 8)):
            check_run(size, seed, compiled)
            report += " ".join(map(str, compiled.attempts))
        compiled.set_param("w", np.ones(4, np.float32))
        for size in (5, 3):
            check_run(size, 1, compiled)
            report += " ".join(map(str, compiled.attempts))
    finally:
        compiled.close()
    session.close()
    return report


def workload_verbs(vulkan: FakeVulkan, work: Callable[[], str] = workload) -> list[str]:
    work()
    return list(vulkan.ports[0].calls)


def test_workload_without_faults(fake_vulkan: Callable[..., FakeVulkan]) -> None:
    """The workload is right without a fault, and leaves one shared pipeline."""
    vulkan = fake_vulkan()
    verbs = workload_verbs(vulkan)
    assert len(verbs) > 40
    assert len(vulkan.ports[0].live_handles) == 1
    pool.close_all()
    assert not vulkan.ports[0].live_handles


@pytest.mark.parametrize("work", [workload, dynamic_workload])
@pytest.mark.parametrize("kind", FAILURE_KINDS)
def test_every_failure_at_every_call(
    kind: FailureKind, work: Callable[[], str], fake_vulkan: Callable[..., FakeVulkan]
) -> None:
    """Every call may fail: the work is right or raises, and the next run is right.

    Nothing is left alive.
    """
    verbs = workload_verbs(fake_vulkan(), work)
    n_failures = 0
    for call_number, verb in enumerate(verbs, 1):
        if verb not in FAILING_VERBS[kind]:
            continue
        n_failures += 1
        vulkan = fake_vulkan(InjectedFailure(call_number, kind))
        report = ""
        try:
            report = work()
        except ERROR_TYPES[kind] as error:
            report = str(error)
        # A loss nobody has read since is no harm done; all else must be told.
        assert report or kind == "lost-unseen", (
            f"{kind} at call {call_number} ({verb}) was silent"
        )
        if verb == "open":  # a failed opening is remembered until the pool is closed
            pool.close_all()
        work()
        pool.close_all()
        assert all(not port.live_handles for port in vulkan.ports), (
            f"{kind} at call {call_number}"
        )
    assert n_failures > 0


def test_compile_succeeds_after_a_failed_allocation(
    fake_vulkan: Callable[..., FakeVulkan],
) -> None:
    """A session compiles the graph again after an allocation failed."""
    vulkan = fake_vulkan(InjectedFailure("buffer", "out-of-memory"))
    session = Session("vulkan")
    with pytest.raises(OutOfMemory):
        session.compile(make_layer(3))
    compiled = set_ones(session.compile(make_layer(3)))
    check_run(3, 7, compiled)
    assert len(vulkan.ports) == 1


def test_a_refused_shader_shows_its_source(
    fake_vulkan: Callable[..., FakeVulkan],
) -> None:
    """A refused shader shows its source and the step it belongs to."""
    fake_vulkan(InjectedFailure("pipeline", "shader-refused"))
    with pytest.raises(ShaderRejected, match=r"step .*mul.*add") as caught:
        Session("vulkan").compile(make_layer(3))
    assert "fn main(" in caught.value.source


@pytest.mark.parametrize("view", [False, True])
def test_lost_run_is_retried_on_the_reopened_device(
    fake_vulkan: Callable[..., FakeVulkan], view: bool
) -> None:
    """A lost run is retried on the reopened device, and says so.

    It has the params of before, also if their arrays changed since.
    """
    vulkan = fake_vulkan(InjectedFailure("read", "lost"))
    compiled, w = Session("vulkan").compile(make_layer(3)), np.ones((3, 4), np.float32)
    compiled.set_param("w", np.broadcast_to(w, w.shape) if view else w)
    w[:] = 7
    check_run(3, 1, compiled)
    assert len(vulkan.ports) == 2
    assert not vulkan.ports[0].live_handles
    first, second = compiled.attempts
    assert "it was asked to go" in first.error
    assert (second.device, second.error) == (compiled.device, "")
    assert "repeated" in compiled.explain()
    assert "vulkan: succeeded" in compiled.explain()
    check_run(3, 2, compiled)
    assert len(vulkan.ports) == 2
    compiled.close()


@pytest.mark.parametrize("verb", ["pipeline", "buffer", "write"])
def test_loss_noticed_before_the_run_stops_only_strict_runs(
    fake_vulkan: Callable[..., FakeVulkan], verb: str
) -> None:
    """A loss noticed by compiling or by a param stops no run but a strict one.

    The param's value is kept.
    """
    vulkan = fake_vulkan(InjectedFailure(verb, "lost"))
    compiled = set_ones(Session("vulkan").compile(make_layer(3)))
    check_run(3, 1, compiled)
    assert len(vulkan.ports) == 2
    assert [attempt.error != "" for attempt in compiled.attempts] == [True, False]
    compiled.close()
    fake_vulkan(InjectedFailure(verb, "lost"))
    with pytest.raises(DeviceLost):
        set_ones(Session("vulkan", strict=True).compile(make_layer(3)))


@pytest.mark.parametrize("strict_on", ["session", "run"])
def test_strict_retries_nothing(
    fake_vulkan: Callable[..., FakeVulkan], strict_on: str
) -> None:
    """The old program keeps reporting its device's loss; a new one works."""
    vulkan = fake_vulkan(InjectedFailure("read", "lost"))
    session = Session("vulkan", strict=strict_on == "session")
    old = set_ones(session.compile(make_layer(3)))
    strict = None if strict_on == "session" else True
    feeds = {"x": np.zeros((3, 4), np.float32)}
    for _ in range(2):
        with pytest.raises(DeviceLost, match="it was asked to go"):
            old.run(feeds, strict=strict)
    check_run(3, 1, set_ones(session.compile(make_layer(3))))
    with pytest.raises(DeviceLost, match="it was asked to go"):
        old.run(feeds, strict=True)
    assert len(vulkan.ports) == 2
    old.close()


def test_a_device_lost_twice_is_an_error(
    fake_vulkan: Callable[..., FakeVulkan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device lost twice is an error that names both attempts; no other is tried."""
    vulkan = fake_vulkan()
    compiled = set_ones(Session("vulkan").compile(make_layer(3)))
    vulkan.ports[0].lost = "it was asked to go"

    async def fail_to_open(adapter: str) -> WebGpuEngine:
        raise AdapterMissing("open vulkan", "the cable is out")

    monkeypatch.setitem(ROWS, "vulkan", Row(fail_to_open))
    with pytest.raises(DeviceLost, match=r"asked to go.*retried on.*cable is out"):
        check_run(3, 1, compiled)


def test_threads_on_a_graph_whose_device_is_lost(
    fake_vulkan: Callable[..., FakeVulkan],
) -> None:
    """Threads on a graph whose device is lost are served by one reopened device."""
    vulkan = fake_vulkan()
    compiled = set_ones(Session("vulkan").compile(make_layer(3)))

    def work(k: int) -> None:
        for seed in range(10):
            if (k, seed) == (0, 5):
                vulkan.ports[0].lost = "it was asked to go"
            check_run(3, k * 10 + seed, compiled)

    run_concurrently([partial(work, k) for k in range(6)])
    assert len(vulkan.ports) == 2
    assert compiled.attempts


def test_losses_in_a_row(fake_vulkan: Callable[..., FakeVulkan]) -> None:
    """A device that is lost repeatedly is reopened each time."""
    vulkan = fake_vulkan()
    rounds = 80
    for _ in range(rounds):
        compiled = set_ones(Session("vulkan").compile(make_layer(3)))
        check_run(3, 2, compiled)
        vulkan.ports[-1].lost = "it was asked to go"
        check_run(3, 3, compiled)
        compiled.close()
    assert len(vulkan.ports) == rounds + 1
    pool.close_all()
    assert all(not port.live_handles for port in vulkan.ports)
