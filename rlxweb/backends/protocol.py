"""What every engine offers, and all that anybody may ask of one.

An engine is a subclass of `Backend`: `name`, `target` and four coroutines are its own,
everything else has an answer here that is right for an engine that computes in the
host's memory. Arrays that reach it have been checked: dtype, shape and names are right.
`array.py` is the shortest example, `webgpu.py` the longest.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import (
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from math import prod
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np

from rlxweb.backends.timed import Timed
from rlxweb.errors import GraphError, SessionClosed, Unsupported
from rlxweb.gpu.turns import Turn
from rlxweb.kept import Kept

if TYPE_CHECKING:  # an engine says what it is before anybody compiles for it
    import numpy.typing as npt

    from rlxweb.compile.plan import Plan
    from rlxweb.compile.target import Target
    from rlxweb.cost.race import Race
    from rlxweb.ir.op import Attrs, Op, TensorType, Types
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
    params   where its params lie: one object for programs that share them
    params_nbytes  what these take of its memory
    """

    __slots__ = ()
    plan: Plan
    engine: Backend
    nbytes: int = 0
    params_nbytes: int = 0
    params: object = None


class Resident:
    """An array that stays on an engine between runs; nothing changes it any more.

    Where its numbers lie is known to its engine alone; `Backend.holds` asks.

    engine   the one that has it
    """

    __slots__ = ("__weakref__", "dtype", "engine", "shape")

    def __init__(
        self, engine: Backend, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.engine, self.shape, self.dtype = engine, shape, dtype


class HostResident(Resident):
    """One in the host's memory: `array` cannot be written."""

    __slots__ = ("array",)

    def __init__(self, engine: Backend, array: Array) -> None:
        super().__init__(engine, array.shape, array.dtype)
        self.array = sealed(array)


Feeds: TypeAlias = "Mapping[str, Array | Resident]"
P = TypeVar("P", bound=Program)
R = TypeVar("R", bound=Resident)
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
    compiler: str = ""
    """What comes before the driver and its version, where a device has several."""
    vendor: str = ""
    """Who made the hardware; "" where that says nothing."""
    software: bool = False
    """Does it pretend to be a device and compute on the CPU's own cores?"""

    waits: bool = False
    """Does it answer only when a browser's event loop turns? In a tab it is not picked
    by blocking code that cannot wait."""
    skips: bool = False
    """May it leave out of a plan what no output reads? Who compiles it whole does."""

    passed_over: tuple[tuple[str, str], ...] = ()
    """Libraries that would come first here and cannot be used, with the reasons."""

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

    async def prepare_beside(self, plan: Plan, other: Program) -> Program:
        """`prepare`, with the params of another program here where they can be shared.

        Then `params` of both are one object, and what is set in one is set in both; a
        graph whose sizes vary has one copy of its weights on the device.
        other    of a plan with the same params
        """
        return await self.prepare(plan)

    @abstractmethod
    async def set_param(self, program: Program, name: str, value: Array) -> None:
        """Keep a param's value for the runs to come."""

    async def get_param(self, program: Program, name: str) -> Array:
        """A param's value, given by `set_param` or `set_param_resident`.

        Errors   DeviceLost, GpuTimeout; Unsupported where no value comes back.
        """
        raise Unsupported(
            f"get param '{name}'",
            f"{self.name} does not give params back",
            hint="compile the graph for device 'cpu' and set it there",
        )

    @abstractmethod
    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs in graph order, in memory of their own. Callers at once take turns.

        Errors   SessionClosed after `release`; DeviceLost, GpuTimeout.
        """

    async def timed(self, program: Program, feeds: Mapping[str, Array]) -> Timed:
        """`run`, and the time of each step where the engine can tell."""
        begun = perf_counter_ns()
        outs = await self.run(program, feeds)
        return Timed(outs, "whole run", (), 0.0, float(perf_counter_ns() - begun), 0.0)

    async def run_each(
        self,
        program: Program,
        feeds: Iterable[Mapping[str, Array]],
        take: Callable[[list[Array]], object],
    ) -> None:
        """`run` over one after the other; `take` gets the outputs of each, in order.

        An engine may ask for the next feeds, which may be read until `take` has their
        outputs, before it hands out those of the run before. What breaks off leaves
        the program as it was. Errors   as `run`, and those of `feeds` and `take`.
        """
        for one in feeds:
            take(await self.run(program, one))

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

    # --- arrays that stay. Here for engines that compute in the host's memory, where
    # nothing has to be moved; one that keeps them elsewhere writes all of these.

    async def put(self, array: Array) -> Resident:
        """A copy of an array on the device, to stay. Errors  OutOfMemory …"""
        return HostResident(self, np.array(array, order="C"))

    async def take(self, given: object) -> Resident | None:
        """A copy of what another library holds, through `__dlpack__`.

        None where it must come by way of the host: also from another device of the
        same kind. Errors  as `put`.
        """
        return None

    async def get(self, resident: Resident) -> Array:
        """Its numbers. Read only where they are lent and not copied.

        Errors   DeviceLost, GpuTimeout; GraphError for another engine's.
        """
        return own_resident(self, HostResident, resident).array

    def holds(self, resident: Resident) -> bool:
        """Does it lie where this engine can compute with it?"""
        return resident.engine is self

    async def free(self, resident: Resident) -> None:  # noqa: B027  nothing to free
        """Give its memory back; whoever dropped the last reference need not call."""

    async def part(
        self, resident: Resident, first: int, shape: tuple[int, ...]
    ) -> Resident:
        """Its numbers from `first` on, row by row, as an array of that shape.

        They are not moved: a part lasts as long as the whole.
        """
        flat = own_resident(self, HostResident, resident).array.reshape(-1)
        return HostResident(self, flat[first : first + prod(shape)].reshape(shape))

    def lend(self, resident: Resident, copy: bool = False) -> object | None:
        """What has `__dlpack__`, over its memory or a copy beside it.

        None where no other library can have it.
        """
        array = own_resident(self, HostResident, resident).array
        return array.copy() if copy else array

    async def run_resident(
        self, program: Program, feeds: Feeds, keep: Sequence[bool]
    ) -> list[Array | Resident]:
        """`run` over arrays of the host and those that stay; some outputs stay too.

        keep     for each output, in graph order: does it stay?
        returns  a Resident for each that does; nothing of it is read back
        """
        given = {n: await self._on_host(one) for n, one in feeds.items()}
        outs = await self.run(program, given)
        both = zip(outs, keep, strict=True)
        return [await self.put(out) if stays else out for out, stays in both]

    async def repeat(self, program: Program, feeds: Feeds, times: int) -> None:
        """The work of a run so many times, then wait: what a benchmark times.

        Nobody waits in between and no result is handed out.
        """
        outs = program.plan.graph.outputs
        for _ in range(times):
            kept = await self.run_resident(program, feeds, [True] * len(outs))
        for one in kept:
            if isinstance(one, Resident) and 0 not in one.shape:
                await self.get(await self.part(one, 0, (1,)))
                break

    async def set_param_resident(
        self, program: Program, name: str, value: Resident
    ) -> None:
        """`set_param` of an array that is here already."""
        await self.set_param(program, name, await self._on_host(value))

    async def _on_host(self, one: Array | Resident) -> Array:
        return await self.get(one) if isinstance(one, Resident) else one

    async def trips(self) -> Trips | None:
        """What a calibration times apart; None where nothing is submitted or moved."""
        return None

    def variants_for(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        """The faster ways it could run that node by, whether it would or not."""
        return ()

    def rivals(
        self, op: Op, inputs: Types, out: TensorType, attrs: Attrs
    ) -> tuple[str, ...]:
        """The ways that node may be run by here, for a race; the op's own kernel goes
        by the op's name.
        """
        return ()

    def prefer(self, races: Sequence[Race]) -> None:  # noqa: B027  has one way each
        """Choose from now on by how these races of its ways ended."""

    def forced(self, variant: str) -> Backend:
        """The same device, which runs by this one of its faster ways wherever that
        fits and else as the ops declare; by none of them for "". Errors  Unsupported.
        """
        raise Unsupported(
            f"run by {variant!r} on {self.name}",
            "this engine has one way for each op",
            hint="leave `variant` out",
        )

    def limited(self, limits: Limits) -> Backend:
        """The same device under stricter limits. Errors  Unsupported."""
        raise Unsupported(
            f"stricter limits on {self.name}",
            "limits can be set for wgpu devices only",
            hint="leave `limits` out",
        )


def sealed(array: Array) -> Array:
    """The same numbers as an array that cannot be written."""
    view = array.view()
    view.flags.writeable = False
    return view


def own_resident(engine: Backend, kind: type[R], resident: Resident) -> R:
    """The resident as the engine's kind. Errors  GraphError for another engine's."""
    if isinstance(resident, kind) and engine.holds(resident):
        return resident
    raise GraphError(
        f"use an array on {engine.name}",
        f"it lies on {resident.engine.name}",
        "an engine computes with what lies on it",
        "get it there and put it here",
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
