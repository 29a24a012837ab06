"""What every backend offers. Read `cpu.py` beside this for the shortest example.

A backend prepares a plan once (buffers, pipelines, closures) and runs it many times.
Arrays that reach it have been checked by the session: dtype, shape and names are right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rlxweb.compile.plan import Plan
from rlxweb.compile.target import Target

Array = npt.NDArray[Any]


class Program(Protocol):
    """A prepared plan. Opaque to everyone but its backend."""

    plan: Plan


class Backend(Protocol):
    """One engine. Coroutines so that a browser can wait; natives never suspend."""

    @property
    def name(self) -> str:
        """The engine in words: "NumPy 2.4 on CPU", "llvmpipe (Vulkan)"."""
        ...

    @property
    def target(self) -> Target: ...

    async def prepare(self, plan: Plan) -> Any:
        """Make everything a run needs. Errors  LimitExceeded, ShaderRejected …"""
        ...

    async def set_param(self, program: Any, name: str, value: Array) -> None:
        """Keep a param's value for the runs to come."""
        ...

    async def run(self, program: Any, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs in graph order, in memory of their own."""
        ...

    async def release(self, program: Any) -> None:
        """Free what `prepare` made. Idempotent."""
        ...

    async def close(self) -> None:
        """Free everything. Idempotent."""
        ...


def as_bytes(array: Array) -> memoryview:
    """The array's bytes in row-major order, without a copy where possible."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data
