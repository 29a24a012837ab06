"""Engine protocol: defaults an engine need not write, and programs it must refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from rlxweb import Graph, Session
from rlxweb.core.errors import DeviceError, GraphError, SessionClosed, Unsupported
from rlxweb.core.limits import tiny_limits
from rlxweb.engines.capabilities import HasVariants, Measures, Profiles, with_limits
from rlxweb.engines.cpu import CpuEngine
from rlxweb.engines.host_engine import HostEngine
from rlxweb.engines.pool import EnginePool, pool
from rlxweb.engines.protocol import (
    Array,
    Engine,
    EngineIdentity,
    require_own_program,
)
from rlxweb.engines.registry import ROWS, Row
from rlxweb.engines.webgpu.engine import WebGpuEngine
from rlxweb.gpu.coroutine_runner import run_blocking
from tests.fake_gpu_port import FakePort
from tests.gpu_ports import open_fake_port, prepare_graph


class MinimalEngine(HostEngine):
    """Engine with only the required members: every output is all ones."""

    identity = EngineIdentity("the smallest")
    target = CpuEngine.target

    def compute(self, program: Any, values: Mapping[str, Array]) -> list[Array]:
        graph = program.plan.graph
        return [np.ones(graph.node(i).type.shape, np.float32) for i in graph.outputs]


def prepare_doubling_program(engine: Engine) -> Any:
    graph = Graph("doubling")
    graph.set_outputs([graph.input("x", (2,)) * graph.param("w", (2,))])
    return prepare_graph(engine, graph)


def fake_webgpu_engine() -> WebGpuEngine:
    return WebGpuEngine(open_fake_port())


ENGINES = {"smallest": MinimalEngine, "cpu": CpuEngine, "webgpu": fake_webgpu_engine}


def test_optional_members_have_defaults() -> None:
    """Defaults suit an engine in the host's memory that caches nothing."""
    engine = MinimalEngine()
    assert engine.identity == EngineIdentity(engine.name, adapter=engine.name)
    assert engine.lost == ""
    assert not isinstance(engine, Measures | Profiles | HasVariants)
    run_blocking(engine.close())
    run_blocking(engine.close())
    program = prepare_doubling_program(engine)
    (got,) = run_blocking(engine.run(program, {"x": np.zeros(2, np.float32)}))
    assert got.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (np.ones(2), r"output 0 as \[2\] float64; the graph declares it as \[2\] f32"),
        (np.ones(3, np.float32), r"output 0 as \[3\] float32; .* as \[2\] f32"),
        (..., "0 outputs; the graph has 1"),
        (None, "None instead of a list of outputs"),
    ],
)
def test_a_run_refuses_outputs_of_another_type(output: Any, words: str) -> None:
    """An output of another dtype or shape than declared is refused with the engine's
    name, at each run.
    """
    engine = MinimalEngine()
    program = prepare_doubling_program(engine)
    feeds = {"x": np.zeros(2, np.float32)}
    assert run_blocking(engine.run(program, feeds))
    returned = [] if output is ... else None if output is None else [output]
    engine.compute = lambda program, values: returned  # type: ignore[method-assign,return-value,assignment]
    for keep in [(), (True,)]:
        with pytest.raises(
            DeviceError, match=rf"^run 'doubling' on the smallest: .* {words}"
        ):
            run_blocking(engine.run(program, feeds, keep))


class FailingEngine(MinimalEngine):
    """Engine of another package whose code raises."""

    identity = EngineIdentity("the failing one")
    fails_to_prepare = False

    async def prepare(self, plan: Any) -> Any:
        if self.fails_to_prepare:
            raise KeyError("kernel")
        return await super().prepare(plan)

    def compute(self, program: Any, values: Mapping[str, Array]) -> list[Array]:
        if "failing" in program.plan.graph.name:
            raise ZeroDivisionError("no blocks")
        return super().compute(program, values)


@pytest.mark.parametrize(
    ("fails_to_prepare", "message"),
    [
        (True, "prepare 'failing' on the failing one: the engine raised KeyError: "),
        (False, "run 'failing' on the failing one: the engine raised ZeroDivisionErr"),
    ],
)
def test_what_an_engine_raises_is_told_with_its_name(
    monkeypatch: pytest.MonkeyPatch, fails_to_prepare: bool, message: str
) -> None:
    """Any exception of its code is the cause of an error that names it."""
    engine = FailingEngine()
    monkeypatch.setattr(pool, "engine_async", partial(_opened, engine))
    engine.fails_to_prepare = fails_to_prepare
    graph = Graph("failing")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    with pytest.raises(DeviceError, match=f"^{message}") as caught:
        Session("cpu").compile(graph).run({"x": np.zeros(2, np.float32)})
    assert isinstance(caught.value.__cause__, KeyError | ZeroDivisionError)


async def _opened(engine: Engine, *_: Any) -> Engine:
    return engine


@pytest.mark.parametrize("name", ["smallest", "cpu"])
def test_unsupported_verb_is_refused(name: str) -> None:
    """A verb that an engine does not offer is refused with the reason and a remedy."""
    engine = ENGINES[name]()
    with pytest.raises(
        Unsupported, match="only wgpu devices support limits; omit `limits`"
    ):
        with_limits(engine, tiny_limits())


@pytest.mark.parametrize("missing", sorted(HostEngine.__abstractmethods__))
def test_engine_without_required_verb_is_refused(missing: str) -> None:
    """An engine without a required verb cannot be instantiated; the message names the
    verb.
    """
    body = {k: v for k, v in vars(MinimalEngine).items() if k != missing}
    with pytest.raises(TypeError, match=missing):
        type("Less", (HostEngine,), body)()


@pytest.mark.parametrize("runs", ENGINES)
@pytest.mark.parametrize("prepared", ENGINES)
def test_a_program_runs_on_the_engine_that_prepared_it(
    runs: str, prepared: str
) -> None:
    """Another engine refuses the program and names both program types."""
    runner = ENGINES[runs]()
    preparer = runner if runs == prepared else ENGINES[prepared]()
    program = prepare_doubling_program(preparer)
    program_type = type(prepare_doubling_program(runner))
    value = np.ones(2, np.float32)
    if runner is preparer:
        assert require_own_program(runner, program_type, program) is program
        run_blocking(program.set_param("w", value))
        run_blocking(program.close())
        return
    message = (
        rf"^run 'doubling' on {re.escape(runner.name)}: the program is of type "
        rf"{type(program).__name__}, prepared by {re.escape(preparer.name)}; this "
        rf"engine can only run its own "
    )
    with pytest.raises(GraphError, match=message) as caught:
        run_blocking(runner.run(program, {"x": value}))
    assert (
        caught.value.rule
        == f"this engine can only run its own {program_type.__name__} objects"
    )
    run_blocking(program.close())


@pytest.mark.parametrize("kind", ENGINES)
def test_program_of_another_instance_is_refused(kind: str) -> None:
    """A program of another instance of the same engine class is refused."""
    runner, preparer = ENGINES[kind](), ENGINES[kind]()
    program, value = prepare_doubling_program(preparer), np.ones(2, np.float32)
    with pytest.raises(
        GraphError, match="run the program on the engine that prepared it"
    ):
        run_blocking(runner.run(program, {"x": value}))
    run_blocking(program.set_param("w", value))
    assert run_blocking(preparer.run(program, {"x": value}))


@pytest.mark.parametrize("kind", ENGINES)
def test_closed_program_is_refused(kind: str) -> None:
    """A program can be closed twice and runs no more."""
    engine = ENGINES[kind]()
    program = prepare_doubling_program(engine)
    run_blocking(program.close())
    run_blocking(program.close())
    with pytest.raises(SessionClosed, match="this compiled graph was closed"):
        run_blocking(engine.run(program, {"x": np.ones(2, np.float32)}))


@pytest.mark.parametrize("opened", [object(), None, MinimalEngine, FakePort()])
def test_the_pool_takes_engines_only(
    monkeypatch: pytest.MonkeyPatch, opened: object
) -> None:
    """Any other object that a row opens is refused by its type, and opened again at the
    next request.
    """
    answers = [opened, MinimalEngine()]

    async def open_next(adapter: str) -> Any:
        return answers.pop(0)

    monkeypatch.setitem(ROWS, "tpu", Row(open_next))
    pool = EnginePool()
    with pytest.raises(GraphError) as caught:
        pool.engine("tpu")
    assert caught.value.doing == "open device 'tpu'"
    assert (
        f"returned a {type(opened).__name__}, which is not an e" in caught.value.problem
    )
    assert isinstance(pool.engine("tpu"), MinimalEngine)


def test_the_pool_asks_the_engine_for_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool records how long opening an engine took, whoever requests it later."""

    async def open_minimal(adapter: str) -> MinimalEngine:
        return MinimalEngine()

    monkeypatch.setitem(ROWS, "tpu", Row(open_minimal))
    pool = EnginePool()
    assert pool.opening_ns("tpu") == 0
    with pytest.raises(Unsupported, match="stricter limits on the smallest"):
        pool.engine_with_limits("tpu", "", tiny_limits())
    took = pool.opening_ns("tpu")
    assert took > 0
    assert pool.engine("TPU".lower()) is pool.engine("tpu")
    assert pool.opening_ns("tpu") == took
