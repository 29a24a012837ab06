"""Every call of a session's life fails once in every way a device fails.

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
from rlxweb.backends.pool import pool
from rlxweb.backends.registry import ROWS, Row
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.errors import AdapterMissing, DeviceLost, OutOfMemory, ShaderRejected
from rlxweb.gpu.port import Want
from tests.fake_port import KINDS, STRIKES, Failure, FakePort, Kind
from tests.ports import TELLS, compute, source_of
from tests.threads import at_once


def layer(size: int) -> Graph:
    graph = Graph("layer")
    x, w = graph.input("x", (size, 4)), graph.param("w", (size, 4))
    graph.set_outputs([x * 2.0 + w, x])
    return graph


def varying() -> Graph:
    """The same for any number of rows, and one param for all."""
    graph = Graph("layer")
    x, w = graph.input("x", (Dim("n"), 4)), graph.param("w", (4,))
    graph.set_outputs([x * 2.0 + w, x])
    return graph


def compute_rows(views: Sequence[memoryview], *_: object) -> None:
    """What the region of `varying` computes."""
    first, second, out = (np.frombuffer(v, np.float32) for v in views[:3])
    w, x = sorted((first, second), key=len)
    out[:] = (x.reshape(-1, 4) * 2 + w[:4]).reshape(-1)


SOURCE = source_of(layer(3))
KERNELS = {SOURCE: compute, source_of(varying().bind(n=3)): compute_rows}


class Workplace:
    """Device 'vulkan' opens fakes: the first fails as told, later ones work."""

    def __init__(self, *fail: Failure) -> None:
        self.fail = list(fail)
        self.ports: list[FakePort] = []

    async def open(self, adapter: str) -> WebGpuBackend:
        port = FakePort(self.fail if not self.ports else (), kernels=KERNELS)
        self.ports.append(port)
        await port.open(Want())
        return WebGpuBackend(port)


@pytest.fixture
def workplace(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Workplace]:
    def make(*fail: Failure) -> Workplace:
        made = Workplace(*fail)
        monkeypatch.setitem(ROWS, "vulkan", Row(made.open))
        # The one that every room asks: no fake is left in it for other tests to find.
        for held in ("_open", "_limited", "_failed", "_opening_ns"):
            monkeypatch.setattr(pool, held, {})
        return made

    return make


def with_ones(compiled: Any, size: int = 3) -> Any:
    """The compiled layer with its param set, so that it adds 1."""
    compiled.set_param("w", np.ones((size, 4), np.float32))
    return compiled


def answer(size: int, seed: int, compiled: Any) -> None:
    """One run, which must be right if it comes back at all."""
    x = np.full((size, 4), seed, np.float32)
    y, back = compiled.run({"x": x})
    np.testing.assert_array_equal(y, x * 2 + 1)
    np.testing.assert_array_equal(back, x)


def workload() -> str:
    """Open, compile, set, run three times, another shape, close. What was told."""
    session, told = Session("vulkan"), ""
    for size in (3, 5):
        compiled = session.compile(layer(size))
        try:
            with_ones(compiled, size)
            for seed in range(3):
                answer(size, seed, compiled)
            told += " ".join(map(str, compiled.attempts))
        finally:
            compiled.close()
    session.close()
    return told


def varying_workload() -> str:
    """The same with one compiled graph, whose bindings share what they can."""
    session, told = Session("vulkan"), ""
    compiled = session.compile(varying())
    try:
        compiled.set_param("w", np.ones(4, np.float32))
        for seed, size in enumerate((3, 5, 3, 8)):
            answer(size, seed, compiled)
            told += " ".join(map(str, compiled.attempts))
        compiled.set_param("w", np.ones(4, np.float32))
        for size in (5, 3):
            answer(size, 1, compiled)
            told += " ".join(map(str, compiled.attempts))
    finally:
        compiled.close()
    session.close()
    return told


def calls_of_workload(
    place: Workplace, work: Callable[[], str] = workload
) -> list[str]:
    work()
    return list(place.ports[0].calls)


def test_the_workload_works(workplace: Callable[..., Workplace]) -> None:
    """The workload is right without a fault, and leaves one shared pipeline."""
    place = workplace()
    verbs = calls_of_workload(place)
    assert len(verbs) > 40
    assert len(place.ports[0].live) == 1
    pool.close_all()
    assert not place.ports[0].live


@pytest.mark.parametrize("work", [workload, varying_workload])
@pytest.mark.parametrize("kind", KINDS)
def test_every_failure_at_every_call(
    kind: Kind, work: Callable[[], str], workplace: Callable[..., Workplace]
) -> None:
    """Every call may fail: the work is right or tells, and the next is right.

    Nothing is left alive.
    """
    verbs = calls_of_workload(workplace(), work)
    struck = 0
    for at, verb in enumerate(verbs, 1):
        if verb not in STRIKES[kind]:
            continue
        struck += 1
        place = workplace(Failure(at, kind))
        told = ""
        try:
            told = work()
        except TELLS[kind] as error:
            told = str(error)
        # A loss nobody has read since is no harm done; all else must be told.
        assert told or kind == "lost-unseen", f"{kind} at call {at} ({verb}) was silent"
        if verb == "open":  # a failed opening is remembered until the pool is closed
            pool.close_all()
        work()
        pool.close_all()
        assert all(not port.live for port in place.ports), f"{kind} at call {at}"
    assert struck > 0


def test_memory_that_comes_back_is_used(workplace: Callable[..., Workplace]) -> None:
    """A session compiles the graph again after an allocation failed."""
    place = workplace(Failure("buffer", "out-of-memory"))
    session = Session("vulkan")
    with pytest.raises(OutOfMemory):
        session.compile(layer(3))
    compiled = with_ones(session.compile(layer(3)))
    answer(3, 7, compiled)
    assert len(place.ports) == 1


def test_a_refused_shader_shows_its_source(workplace: Callable[..., Workplace]) -> None:
    """A refused shader shows its source and the step it belongs to."""
    workplace(Failure("pipeline", "shader-refused"))
    with pytest.raises(ShaderRejected, match=r"step .*mul.*add") as caught:
        Session("vulkan").compile(layer(3))
    assert "fn main(" in caught.value.source


@pytest.mark.parametrize("view", [False, True])
def test_a_lost_run_is_done_again_on_the_device_opened_anew(
    workplace: Callable[..., Workplace], view: bool
) -> None:
    """A lost run is done again on the device opened anew, and says so.

    It has the params of before, also if their arrays changed since.
    """
    place = workplace(Failure("read", "lost"))
    compiled, w = Session("vulkan").compile(layer(3)), np.ones((3, 4), np.float32)
    compiled.set_param("w", np.broadcast_to(w, w.shape) if view else w)
    w[:] = 7
    answer(3, 1, compiled)
    assert len(place.ports) == 2
    assert not place.ports[0].live
    first, second = compiled.attempts
    assert "it was asked to go" in first.error
    assert (second.device, second.error) == (compiled.device, "")
    assert "done again" in compiled.explain()
    assert "vulkan: succeeded" in compiled.explain()
    answer(3, 2, compiled)
    assert len(place.ports) == 2
    compiled.close()


@pytest.mark.parametrize("verb", ["pipeline", "buffer", "write"])
def test_a_loss_first_noticed_before_the_run_stops_nobody(
    workplace: Callable[..., Workplace], verb: str
) -> None:
    """A loss noticed by compiling or by a param stops no run but a strict one.

    The param's value is kept.
    """
    place = workplace(Failure(verb, "lost"))
    compiled = with_ones(Session("vulkan").compile(layer(3)))
    answer(3, 1, compiled)
    assert len(place.ports) == 2
    assert [one.error != "" for one in compiled.attempts] == [True, False]
    compiled.close()
    workplace(Failure(verb, "lost"))
    with pytest.raises(DeviceLost):
        with_ones(Session("vulkan", strict=True).compile(layer(3)))


@pytest.mark.parametrize("where", ["session", "run"])
def test_strict_does_nothing_twice(
    workplace: Callable[..., Workplace], where: str
) -> None:
    """The old program says what became of its device, for good; a new one works."""
    place = workplace(Failure("read", "lost"))
    session = Session("vulkan", strict=where == "session")
    old = with_ones(session.compile(layer(3)))
    strict = None if where == "session" else True
    feeds = {"x": np.zeros((3, 4), np.float32)}
    for _ in range(2):
        with pytest.raises(DeviceLost, match="it was asked to go"):
            old.run(feeds, strict=strict)
    answer(3, 1, with_ones(session.compile(layer(3))))
    with pytest.raises(DeviceLost, match="it was asked to go"):
        old.run(feeds, strict=True)
    assert len(place.ports) == 2
    old.close()


def test_a_device_lost_twice_is_an_error(
    workplace: Callable[..., Workplace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device lost twice is an error that tells both tries; no other is tried."""
    place = workplace()
    compiled = with_ones(Session("vulkan").compile(layer(3)))
    place.ports[0].lost = "it was asked to go"

    async def gone(adapter: str) -> WebGpuBackend:
        raise AdapterMissing("open vulkan", "the cable is out")

    monkeypatch.setitem(ROWS, "vulkan", Row(gone))
    with pytest.raises(DeviceLost, match=r"asked to go.*tried again.*cable is out"):
        answer(3, 1, compiled)


def test_threads_on_a_graph_whose_device_is_lost(
    workplace: Callable[..., Workplace],
) -> None:
    """Threads on a graph whose device is lost are answered by one opened anew."""
    place = workplace()
    compiled = with_ones(Session("vulkan").compile(layer(3)))

    def work(k: int) -> None:
        for seed in range(10):
            if (k, seed) == (0, 5):
                place.ports[0].lost = "it was asked to go"
            answer(3, k * 10 + seed, compiled)

    at_once([partial(work, k) for k in range(6)])
    assert len(place.ports) == 2
    assert compiled.attempts


def test_losses_in_a_row(workplace: Callable[..., Workplace]) -> None:
    """A device that is lost again and again is opened again and again."""
    place = workplace()
    rounds = 80
    for _ in range(rounds):
        compiled = with_ones(Session("vulkan").compile(layer(3)))
        answer(3, 2, compiled)
        place.ports[-1].lost = "it was asked to go"
        answer(3, 3, compiled)
        compiled.close()
    assert len(place.ports) == rounds + 1
    pool.close_all()
    assert all(not port.live for port in place.ports)
