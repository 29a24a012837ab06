"""What an engine need not write, and what no engine takes from another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph
from rlxweb.backends.cpu import CpuBackend
from rlxweb.backends.pool import Pool
from rlxweb.backends.protocol import Array, Backend, Program, own
from rlxweb.backends.registry import ROWS, Row
from rlxweb.backends.webgpu import WebGpuBackend
from rlxweb.compile.plan import Plan
from rlxweb.errors import GraphError, Unsupported
from rlxweb.gpu.drive import drive
from rlxweb.limits import shrunk
from tests.fake_port import FakePort
from tests.ports import fake, prepared


class Own(Program):
    """A plan, and nothing else."""

    def __init__(self, plan: Plan, engine: Backend) -> None:
        self.plan, self.engine = plan, engine


class Smallest(Backend):
    """An engine that writes only what it must: every output is all ones."""

    name = "the smallest"
    target = CpuBackend.target

    async def prepare(self, plan: Plan) -> Own:
        return Own(plan, self)

    async def set_param(self, program: Program, name: str, value: Array) -> None:
        own(self, Own, program)

    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        graph = own(self, Own, program).plan.graph
        return [np.ones(graph.node(i).type.shape, np.float32) for i in graph.outputs]

    async def release(self, program: Program) -> None:
        own(self, Own, program)


def program_of(backend: Backend) -> Any:
    graph = Graph("doubling")
    graph.set_outputs([graph.input("x", (2,)) * graph.param("w", (2,))])
    return prepared(backend, graph)


def on_a_fake() -> WebGpuBackend:
    return WebGpuBackend(fake())


ENGINES = {"smallest": Smallest, "cpu": CpuBackend, "webgpu": on_a_fake}


def test_everything_else_has_an_answer() -> None:
    """Default answers fit an engine in the host's memory that keeps nothing."""
    one = Smallest()
    assert (one.adapter, one.api, one.driver, one.vendor) == (one.name, "", "", "")
    assert (one.software, one.lost) == (False, "")
    assert drive(one.trips()) is None
    drive(one.close())
    drive(one.close())
    program = program_of(one)
    (got,) = drive(one.run(program, {"x": np.zeros(2, np.float32)}))
    assert got.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["smallest", "cpu"])
def test_what_an_engine_does_not_offer_is_refused(name: str) -> None:
    """A verb an engine does not offer is refused with the reason and a way out."""
    one = ENGINES[name]()
    with pytest.raises(Unsupported, match="for wgpu devices only; leave `limits` out"):
        one.limited(shrunk())


@pytest.mark.parametrize("missing", sorted(Backend.__abstractmethods__))
def test_an_engine_without_a_verb_is_none(missing: str) -> None:
    """An engine that lacks a verb cannot be made; the message names the verb."""
    body = {k: v for k, v in vars(Smallest).items() if k != missing}
    with pytest.raises(TypeError, match=missing):
        type("Less", (Backend,), body)()


@pytest.mark.parametrize("runs", ENGINES)
@pytest.mark.parametrize("prepared", ENGINES)
def test_a_program_runs_on_the_engine_that_prepared_it(
    runs: str, prepared: str
) -> None:
    """Another one refuses it in every verb, and says what it is and what it takes."""
    here = ENGINES[runs]()
    there = here if runs == prepared else ENGINES[prepared]()
    program = program_of(there)
    kind = type(program_of(here))
    value = np.ones(2, np.float32)
    if here is there:
        assert own(here, kind, program) is program
        drive(here.set_param(program, "w", value))
        drive(here.release(program))
        return
    said = (
        rf"^run 'doubling' on {re.escape(here.name)}: it was prepared as a "
        rf"{type(program).__name__} by {re.escape(there.name)}; this engine runs a "
    )
    verbs: list[Any] = [
        lambda: here.set_param(program, "w", value),
        lambda: here.run(program, {"x": value}),
        lambda: here.release(program),
    ]
    for verb in verbs:
        with pytest.raises(GraphError, match=said) as found:
            drive(verb())
        assert found.value.rule == f"this engine runs a {kind.__name__} of its own"
    drive(there.release(program))


@pytest.mark.parametrize("kind", ENGINES)
def test_a_program_of_another_adapter_is_refused(kind: str) -> None:
    """An engine of the same class is another engine all the same."""
    here, there = ENGINES[kind](), ENGINES[kind]()
    program, value = program_of(there), np.ones(2, np.float32)
    with pytest.raises(GraphError, match="run it on the engine that prepared it"):
        drive(here.run(program, {"x": value}))
    drive(there.set_param(program, "w", value))
    assert drive(there.run(program, {"x": value}))


@pytest.mark.parametrize("opened", [object(), None, Smallest, FakePort()])
def test_the_pool_takes_engines_only(
    monkeypatch: pytest.MonkeyPatch, opened: object
) -> None:
    """What else a row opens is refused by its type, and tried again the next time."""
    answers = [opened, Smallest()]

    async def open_it(adapter: str) -> Any:
        return answers.pop(0)

    monkeypatch.setitem(ROWS, "tpu", Row(open_it))
    pool = Pool()
    with pytest.raises(GraphError) as found:
        pool.backend("tpu")
    assert found.value.doing == "open device 'tpu'"
    assert f"opened a {type(opened).__name__}, which is no e" in found.value.problem
    assert isinstance(pool.backend("tpu"), Smallest)


def test_the_pool_asks_the_engine_for_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool knows how long opening an engine took, whoever asks for it later."""

    async def open_it(adapter: str) -> Smallest:
        return Smallest()

    monkeypatch.setitem(ROWS, "tpu", Row(open_it))
    pool = Pool()
    assert pool.opening_ns("tpu") == 0
    with pytest.raises(Unsupported, match="stricter limits on the smallest"):
        pool.limited("tpu", "", shrunk())
    took = pool.opening_ns("tpu")
    assert took > 0
    assert pool.backend("TPU".lower()) is pool.backend("tpu")
    assert pool.opening_ns("tpu") == took
