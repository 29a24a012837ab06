"""An engine of a stranger's, for tests: node by node over NumPy, and what it can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlxweb.backends.array import array_target
from rlxweb.backends.evaluate import evaluate
from rlxweb.backends.protocol import Array, Backend, Program
from rlxweb.backends.registry import Row
from rlxweb.compile.plan import Plan
from rlxweb.compile.target import Target
from rlxweb.ir.dtype import DType


@dataclass
class Prepared(Program):
    """A plan and the values of its params."""

    plan: Plan
    engine: Backend
    params: dict[str, Array] = field(default_factory=dict)


class MadeEngine(Backend):
    """Right, unless `off` is added to its results."""

    name = "Made 1.0"
    api = "made"

    def __init__(self, off: float = 0.0) -> None:
        self.off = off
        self.runs = self.held = 0

    @property
    def target(self) -> Target:
        return array_target("made", frozenset({DType.F32, DType.I32, DType.U32}))

    async def prepare(self, plan: Plan) -> Program:
        self.held += 1
        return Prepared(plan, self)

    async def set_param(self, program: Any, name: str, value: Array) -> None:
        program.params[name] = np.array(value)

    async def run(self, program: Any, feeds: Mapping[str, Array]) -> list[Array]:
        self.runs += 1
        outs = evaluate(program.plan.graph, {**feeds, **program.params})
        return [np.array(out) + out.dtype.type(self.off) for out in outs]

    async def release(self, program: Any) -> None:
        self.held -= 1
        program.params.clear()


@dataclass
class Shop:
    """Opens made engines and keeps them, so that a test sees whether any was."""

    opened: list[MadeEngine] = field(default_factory=list)

    async def open(self, adapter: str) -> Backend:
        self.opened.append(MadeEngine())
        return self.opened[-1]

    def row(self, *, named_only: bool = True) -> Row:
        return Row(self.open, display="Made", named_only=named_only)
