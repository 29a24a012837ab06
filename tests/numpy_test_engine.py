"""Third-party engine for tests: evaluates a plan node by node with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlxweb.compiler.plan import Plan
from rlxweb.compiler.target import Target
from rlxweb.engines.array import array_target
from rlxweb.engines.evaluate import evaluate
from rlxweb.engines.host_engine import HostEngine, HostProgram
from rlxweb.engines.protocol import Array, Engine, EngineIdentity
from rlxweb.engines.registry import Row
from rlxweb.ir.dtype import DType


class NumpyTestProgram(HostProgram):
    """Program that its engine counts while it is open."""

    engine: NumpyTestEngine

    def __init__(self, plan: Plan, engine: NumpyTestEngine) -> None:
        super().__init__(plan, engine)
        engine.live_programs += 1

    async def close(self) -> None:
        self.engine.live_programs -= 1
        await super().close()


class NumpyTestEngine(HostEngine):
    """NumPy engine, exact unless `off` is added to its results."""

    identity = EngineIdentity("Made 1.0", api="made")

    def __init__(self, result_offset: float = 0.0) -> None:
        self.result_offset = result_offset
        self.runs = self.live_programs = 0

    @property
    def target(self) -> Target:
        return array_target("made", frozenset({DType.F32, DType.I32, DType.U32}))

    async def prepare(self, plan: Plan) -> HostProgram:
        return NumpyTestProgram(plan, self)

    def compute(self, program: Any, values: Mapping[str, Array]) -> list[Array]:
        self.runs += 1
        outputs = evaluate(program.plan.graph, values)
        return [out + out.dtype.type(self.result_offset) for out in outputs]


@dataclass
class NumpyTestEngineOpener:
    """Opener of NumPy engines that keeps each one, so that a test sees whether any was
    opened.
    """

    opened: list[NumpyTestEngine] = field(default_factory=list)

    async def open_engine(self, adapter: str) -> Engine:
        self.opened.append(NumpyTestEngine())
        return self.opened[-1]

    def registry_row(self, *, named_only: bool = True) -> Row:
        return Row(self.open_engine, display="Made", named_only=named_only)
