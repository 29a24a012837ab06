"""Base of engines that compute in the host's memory, where arrays need not be moved."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from rlxweb.engines.protocol import (
    Array,
    DeviceBuffer,
    Engine,
    Feeds,
    Program,
    check_outputs,
    closed_error,
    engine_named_in_errors,
    output_types,
    read_only_view,
    require_own_buffer,
    require_own_program,
)

if TYPE_CHECKING:  # an engine says what it is before anybody compiles for it
    from rlxweb.compiler.plan import Plan


class HostEngine(Engine):
    """Engine that computes in the host's memory; `compute` is all that it needs besides
    its identity and its target.
    """

    @abstractmethod
    def compute(self, program: Any, values: Mapping[str, Array]) -> Sequence[Array]:
        """Return the outputs of a program, in graph order.

        program  what `prepare` returned
        values   inputs and params by name, which may not be written to
        returns  arrays of the declared dtypes and shapes, which are checked; they are
                 copied, as they may share memory with `values`
        """

    async def prepare(self, plan: Plan) -> HostProgram:
        return HostProgram(plan, self)

    async def run(
        self, program: Program, feeds: Feeds, keep: Sequence[bool] = ()
    ) -> list[Any]:
        prepared = require_own_program(self, HostProgram, program)
        # Taken before it is asked whether they are still there: runs need no turns.
        values = dict(prepared.params)
        if prepared.is_closed:
            raise closed_error(f"run '{prepared.plan.graph.name}' on {self.name}")
        for name, value in feeds.items():
            values[name] = await _host_array(self, value)
        with engine_named_in_errors(self, f"run '{prepared.plan.graph.name}'"):
            outputs = self.compute(prepared, values)
            if isinstance(outputs, Sequence):
                outputs = [np.array(output, order="C") for output in outputs]
        check_outputs(self, prepared.plan.graph, prepared.output_types, outputs)
        flags = keep or [False] * len(outputs)
        return [
            HostBuffer(self, output) if stays else output
            for output, stays in zip(outputs, flags, strict=True)
        ]

    async def put(self, array: Array) -> DeviceBuffer:
        return HostBuffer(self, np.array(array, order="C"))

    async def get(self, buffer: DeviceBuffer) -> Array:
        return require_own_buffer(self, HostBuffer, buffer).array


class HostProgram(Program):
    """Program whose params lie in the host's memory."""

    def __init__(self, plan: Plan, engine: Engine) -> None:
        self.plan, self.engine = plan, engine
        self.output_types = output_types(plan.graph)
        self.params: dict[str, Array] = {}
        self.is_closed = False

    async def set_param(self, name: str, value: Array | DeviceBuffer) -> None:
        if self.is_closed:
            raise closed_error(f"set param '{name}'")
        self.params[name] = np.array(await _host_array(self.engine, value))

    async def get_param(self, name: str) -> Array:
        if self.is_closed:
            raise closed_error(f"get param '{name}'")
        return self.params[name].copy()

    async def close(self) -> None:
        self.is_closed = True
        self.params = {}


class HostBuffer(DeviceBuffer):
    """Device buffer in the host's memory; `array` cannot be written."""

    __slots__ = ("array",)

    def __init__(self, engine: Engine, array: Array) -> None:
        super().__init__(engine, array.shape, array.dtype)
        self.array = read_only_view(array)

    def part(self, first: int, shape: tuple[int, ...]) -> HostBuffer:
        flat = self.array.reshape(-1)[first : first + prod(shape)]
        return HostBuffer(self.engine, flat.reshape(shape))

    def lend(self, copy: bool = False) -> Array:
        return self.array.copy() if copy else self.array


async def _host_array(engine: Engine, value: Array | DeviceBuffer) -> Array:
    """Return the numbers of an array, or of a buffer of that engine, in the host's
    memory.
    """
    return await engine.get(value) if isinstance(value, DeviceBuffer) else value
