"""What every engine offers, and all that anybody may ask of one.

An engine is a subclass of `Backend`: `name`, `target` and four coroutines are its own,
everything else has an answer here that is right for an engine that computes in the
host's memory. Arrays that reach it have been checked: dtype, shape and names are right.
`array.py` is the shortest example, `webgpu.py` the longest.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np

from rlxweb.errors import GraphError, SessionClosed, Unsupported
from rlxweb.gpu.turns import Turn
from rlxweb.kept import Kept

if TYPE_CHECKING:  # an engine says what it is before anybody compiles for it
    import numpy.typing as npt

    from rlxweb.compile.plan import Plan
    from rlxweb.compile.target import Target
    from rlxweb.limits import Limits

Array: TypeAlias = "npt.NDArray[Any]"

CPU_ENGINE = (
    f"NumPy {np.__version__}",
    "numpy",
    f"Python {sys.version_info[0]}.{sys.version_info[1]}",
)
"""Adapter, API and driver of the one engine that is known without opening it."""


class Program:
    """A prepared plan. What else is in it is known to its engine alone.

    engine   the one that prepared it; `own` asks
    nbytes   of the device's memory that it holds
    """

    __slots__ = ()
    plan: Plan
    engine: Backend
    nbytes: int = 0


class Resident:
    """An array that stays on an engine between runs. Opaque but to its engine."""


P = TypeVar("P", bound=Program)
T = TypeVar("T")
KEPT, KEPT_BYTES = 32, 256 << 20
"""How many prepared programs an engine keeps for a next time, and their memory."""
Trip = Callable[[], Coroutine[Any, None, None]]
"""One trip to a device and back, to be timed."""


class Trips(Protocol):
    """Bare trips to a device: what a run pays besides its kernels, for calibration."""

    async def wait(self) -> None:
        """Submit next to nothing and wait for it."""

    async def dispatches(self, count: int) -> None:
        """So many trivial kernels in one submission, and the wait."""

    def upload(self, nbytes: int) -> Trip:
        """Host bytes to the device, and the wait. Errors  OutOfMemory, LimitExceeded"""

    def readback(self, nbytes: int) -> Trip:
        """Device bytes to the host. Errors  as `upload`."""

    def close(self) -> None:
        """Free what the trips need."""


class Backend(ABC):
    """One engine. Coroutines so that a browser can wait; natives never suspend."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The engine in words: "NumPy 2.4", "llvmpipe (vulkan)"."""

    @property
    @abstractmethod
    def target(self) -> Target:
        """What the compiler must know: dtypes, limits, which ops are native."""

    @property
    def adapter(self) -> str:
        """The hardware or library alone; measurements are kept under it."""
        return self.name

    api: str = ""
    """How it is reached: "vulkan", "numpy", "cuda"; "" where the name says it."""
    driver: str = ""
    """The driver and its version; a new one makes measurements out of date."""
    vendor: str = ""
    """Who made the hardware; "" where that says nothing."""
    software: bool = False
    """Does it pretend to be a device and compute on the CPU's own cores?"""

    @property
    def tried(self) -> dict[Hashable, object]:
        """The custom ops that were compared here with their references."""
        tried: dict[Hashable, object] = self.__dict__.setdefault("_tried", {})
        return tried

    @property
    def lost(self) -> str:
        """Why the device is gone for good; "" while it is there."""
        return ""

    @abstractmethod
    async def prepare(self, plan: Plan) -> Program:
        """Make everything a run needs. Errors  LimitExceeded, ShaderRejected …"""

    @abstractmethod
    async def set_param(self, program: Program, name: str, value: Array) -> None:
        """Keep a param's value for the runs to come."""

    @abstractmethod
    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs in graph order, in memory of their own. Callers at once take turns.

        Errors   SessionClosed after `release`; DeviceLost, GpuTimeout.
        """

    @abstractmethod
    async def release(self, program: Program) -> None:
        """Free what `prepare` made, once no run needs it. Idempotent."""

    @property
    def kept(self) -> Kept[Any, Any]:
        """Prepared work that will be wanted again: one table for all who run here."""
        return self._made("_kept", lambda: Kept(KEPT, KEPT_BYTES))

    @property
    def turn(self) -> Turn:
        """Held by whoever runs work that is `kept`."""
        return self._made("_turn", Turn)

    def _made(self, name: str, make: Callable[[], T]) -> T:
        # An engine need not call this class's constructor; threads agree on one.
        known: dict[str, T] = vars(self)
        return known[name] if name in known else known.setdefault(name, make())

    async def close(self) -> None:  # noqa: B027  most hold nothing open
        """Free everything. Idempotent."""

    async def put(self, array: Array) -> Resident:
        """Bring an array to the device to stay. Errors  Unsupported, OutOfMemory."""
        raise Unsupported(f"put an array on {self.name}", *_NO_RESIDENTS)

    async def get(self, resident: Resident) -> Array:
        """The array back, in memory of its own. Errors  Unsupported, DeviceLost."""
        raise Unsupported(f"get an array from {self.name}", *_NO_RESIDENTS)

    async def trips(self) -> Trips | None:
        """What a calibration times apart; None where nothing is submitted or moved."""
        return None

    def limited(self, limits: Limits) -> Backend:
        """The same device under stricter limits. Errors  Unsupported."""
        raise Unsupported(
            f"stricter limits on {self.name}",
            "limits can be set for wgpu devices only",
            hint="leave `limits` out",
        )


_NO_RESIDENTS = (
    "this engine keeps no arrays between runs",
    "params stay on the device; inputs come with each run",
    "make it a param of the graph",
)


def own(engine: Backend, kind: type[P], program: Program) -> P:
    """The program as its engine's kind. Errors  GraphError for another engine's."""
    if isinstance(program, kind) and program.engine is engine:
        return program
    maker = getattr(program, "engine", None)
    by = "" if maker is None else f" by {maker.name}"
    raise GraphError(
        f"run '{program.plan.graph.name}' on {engine.name}",
        f"it was prepared as a {type(program).__name__}{by}",
        f"this engine runs a {kind.__name__} of its own",
        "run it on the engine that prepared it",
    )


def released(doing: str) -> SessionClosed:
    """The error for a program that is run after its `release`."""
    return SessionClosed(
        doing, "this compiled graph was closed", hint="compile it again"
    )


def as_bytes(array: Array) -> memoryview:
    """The array's bytes in row-major order, without a copy where possible."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data
