"""CompiledGraph: a graph on one device, run many times.

The core is one coroutine; `run` drives it to its end without an event loop, `run_async`
hands it to the caller's. Nothing else is doubled.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, overload

from rlxweb.arguments import switch
from rlxweb.backends.protocol import Array, Resident
from rlxweb.choose.again import LOST
from rlxweb.choose.chooser import Pick
from rlxweb.choose.graphs import GraphJob
from rlxweb.compile.plan import Plan
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.decision import Decision
from rlxweb.decision.explain import explain_decision
from rlxweb.device import Device
from rlxweb.errors import DTypeError, RlxError, Unsupported
from rlxweb.given import from_there
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import DTypeLike
from rlxweb.ir.graph import Graph
from rlxweb.names import also
from rlxweb.runtime.binds import Binds
from rlxweb.runtime.device_array import DeviceArray, Keep, put_on, staying
from rlxweb.runtime.exporting import Exports
from rlxweb.runtime.feeds import Given, as_input, check_feeds, lying, param_named
from rlxweb.runtime.mapped import Maps
from rlxweb.runtime.placed import Beside, Placed, Ready
from rlxweb.runtime.profiling import Profiles
from rlxweb.runtime.raw_bytes import Typed, as_feeds, as_raw, as_typed

if TYPE_CHECKING:
    from rlxweb.runtime.profile import Profile
    from rlxweb.runtime.session import Session


class CompiledGraph(Binds, Maps, Profiles, Exports):
    """A graph ready to run on one device. Made by `Session.compile`.

    Threads and tasks may share it: they take turns where the device needs that.

    decisions  where it runs and why, then what the compiler decided
    """

    def __init__(
        self,
        pick: Pick[GraphJob],
        ready: Ready,
        session: Session,
        beside: Beside | None = None,
    ) -> None:
        self._job = pick.job
        self._pick = pick
        self._session = session
        self._inputs = self._job.graph.named("input")
        self._params = self._job.graph.named("param")
        self._placed = Placed(pick, ready, self._params, session, beside)

    @property
    def graph(self) -> Graph:
        """A copy of the graph that was compiled."""
        return self._job.graph.copy()

    @property
    def device(self) -> Device:
        return self._placed.ready.way.device

    @property
    def engine(self) -> str:
        """The engine that computes, in words: "NumPy 2.4", "llvmpipe (vulkan)"."""
        return self._placed.ready.backend.name

    @property
    def plan(self) -> Plan:
        return self._placed.ready.program.plan

    @property
    def nbytes(self) -> int:
        """Bytes of the device's memory that it holds."""
        return self._placed.ready.program.nbytes

    @property
    def decisions(self) -> tuple[Decision, ...]:
        chosen = self._session.device is None or self._placed.decision.attempts
        own = (self._placed.decision,) if chosen else ()
        return own + self.plan.decisions

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Where a run was tried, if one was lost with its device; else nothing."""
        return self._placed.decision.attempts

    @also(data="value")
    def set_param(self, name: str, value: Any) -> None:
        """Give a param its value, kept for all later runs.

        A DeviceArray is handed over where it lies: state that one run leaves is the
        next one's, and nothing of it is read back. No other copy of it is kept.

        Errors   UnknownName, DTypeError, ShapeError; InputError if it lies elsewhere.
        """
        drive(self.param_set(name, value))

    @also(data="value")
    def set_param_typed(
        self, name: str, value: Any, dtype: DTypeLike | None = None
    ) -> None:
        """`set_param` of raw bytes or of anything array-like, read as `dtype`.

        dtype   RLX's name ("f32"), a DType or a NumPy dtype; the declared one when left
                out. Bytes are in C order, little-endian unless a NumPy dtype says big.
                Values of another dtype are converted to the declared one: rounded into
                floats, and into integers and bool only where no value changes.
        Errors  UnknownName; ShapeError for bytes of another length than declared;
                DTypeError for values that the declared dtype cannot hold.
        """
        doing = f"set_param_typed of '{self._job.graph.name}'"
        node = param_named(doing, self._params, name)
        self.set_param(name, as_typed(doing, node, value, dtype))

    @also(data="value")
    async def set_param_async(self, name: str, value: Any) -> None:
        """`set_param` beside the caller's event loop."""
        await awaited_here(lambda: self.param_set(name, value))

    async def param_set(self, name: str, value: Any) -> None:
        """The core of both: never suspends on a desktop."""
        doing = f"set_param of '{self._job.graph.name}'"
        self._placed.check_open(doing)
        given = as_input(doing, param_named(doing, self._params, name), value)
        placed = self._placed
        async with placed.mending:
            if isinstance(given, DeviceArray):
                now = await placed.present()
                mine = given.lying_on(now.backend, f"{doing}, param '{name}'")
                await placed.set_resident(name, mine)
            else:
                await placed.set_array(name, given)

    def params(self) -> dict[str, Array]:
        """Every param that has a value, by name. Errors  those of the device."""
        self._placed.check_open(f"params of '{self._job.graph.name}'")
        return drive(self._placed.values())

    def put(self, x: Any) -> DeviceArray:
        """An array put where this graph runs, for `run` and `set_param` to take.

        Errors   those of `rlxweb.put`.
        """
        self._placed.check_open(f"put an array for '{self._job.graph.name}'")
        way, engine = self._placed.ready.way, self._placed.ready.backend
        return drive(put_on(engine, x, way.device, way.adapter))

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """`run` of arrays in the order in which the inputs were declared, or by name.

        returns  the output's array; of several outputs a tuple of them
        Errors   TypeError for more arrays than inputs, and for one given twice; those
        of `run`
        """
        names, doing = list(self._inputs), f"'{self._job.graph.name}'"
        if len(arrays) > len(names):
            given = f"{len(arrays)} arrays were given"
            raise TypeError(f"{doing} takes {len(names)} inputs, and {given}")
        inputs = dict(zip(names, arrays, strict=False))
        for name, array in named.items():
            if name in inputs:
                raise TypeError(f"{doing} got input '{name}' twice")
            inputs[name] = array
        outs = drive(self.computed(inputs))
        return outs[0] if len(outs) == 1 else tuple(outs)

    @overload
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Literal[False] = False,
        profile: Literal[False] = False,
    ) -> list[Array]: ...

    @overload
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Literal[True],
        profile: Literal[False] = False,
    ) -> list[DeviceArray]: ...

    @overload
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Keep,
        profile: Literal[False] = False,
    ) -> list[Any]: ...

    @overload
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        profile: Literal[True],
    ) -> Profile: ...

    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Keep = False,
        profile: bool = False,
    ) -> list[Any] | Profile:
        """Compute the outputs, in the order of `set_outputs`.

        inputs   arrays by name; dtype and shape as declared. A DeviceArray is used
                 where it lies, which must be here.
        strict   True: a run that is lost with its device raises. Else it is done again,
                 and `explain` says where: on the device opened anew, then, where
                 rlxweb chose the device, on the next that it would have taken. What
                 lay on a lost device is gone, and a run that needs it raises. Values of
                 64 bits that a device rlxweb chose cannot hold go to the CPU likewise.
        keep     True: outputs stay on the device, as DeviceArrays, and nothing is read
                 back; positions, (0, 2): those stay
        profile  True: where the time went, step by step; `outputs` of it are the run's
        returns  NumPy arrays of the declared dtypes, in memory of their own
        Errors   InputError, UnknownName, DTypeError, ShapeError before any device call;
        IndexRefused, DeviceLost, GpuTimeout, OutOfMemory from the device. A profiled
        run that is lost raises, whatever `strict` says.
        """
        if profile:
            return drive(self._profiled(inputs, 1, keep))
        return drive(self.computed(inputs, strict, keep))

    def run_typed(
        self,
        inputs: Mapping[str, tuple[Any, DTypeLike]] | None = None,
        *,
        strict: bool | None = None,
    ) -> list[Typed]:
        """`run` over bytes: {name: (bytes, dtype)} in, [(bytes, dtype's label)] out.

        Inputs of another dtype than declared are converted, as `set_param_typed` does.

        Errors   those of `run`; ShapeError for bytes of another length than declared;
        DTypeError for values that the declared dtype cannot hold.
        """
        feeds = as_feeds(f"run '{self._job.graph.name}'", self._inputs, inputs)
        return [as_raw(array) for array in self.run(feeds, strict=strict)]

    @overload
    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Literal[False] = False,
        profile: Literal[False] = False,
    ) -> list[Array]: ...

    @overload
    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Literal[True],
        profile: Literal[False] = False,
    ) -> list[DeviceArray]: ...

    @overload
    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Keep,
        profile: Literal[False] = False,
    ) -> list[Any]: ...

    @overload
    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        profile: Literal[True],
    ) -> Profile: ...

    async def run_async(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        strict: bool | None = None,
        keep: Keep = False,
        profile: bool = False,
    ) -> list[Any] | Profile:
        """`run` beside the caller's event loop."""
        if profile:
            return await awaited_here(lambda: self._profiled(inputs, 1, keep))
        return await awaited_here(lambda: self.computed(inputs, strict, keep))

    async def computed(
        self,
        inputs: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        keep: Keep = False,
    ) -> list[Any]:
        """The core of both: never suspends on a desktop."""
        doing = f"run '{self._job.graph.name}'"
        self._placed.check_open(doing)
        if strict is not None:
            strict = switch("strict", strict, doing)
        feeds = check_feeds(self._job.graph, self._inputs, inputs)
        placed = self._placed
        placed.check_set(doing)
        if keep is not False or DeviceArray in map(type, feeds.values()):
            return await self._on_device(doing, feeds, strict, keep)
        arrays: dict[str, Any] = feeds
        ready, begun = placed.ready, perf_counter_ns()
        try:
            outs = await ready.backend.run(ready.program, arrays)
        except (*LOST, DTypeError) as error:
            if self._session.strict if strict is None else strict:
                raise
            return await placed.otherwise(
                ready, error, lambda now: now.backend.run(now.program, arrays)
            )
        if placed.is_warm:
            self._pick.observe(perf_counter_ns() - begun, ready.way.device)
        placed.is_warm = True
        return outs

    async def _on_device(
        self, doing: str, feeds: Given, strict: bool | None, keep: Keep
    ) -> list[Any]:
        """A run of which some arrays stay. Its time says nothing of others."""
        count = len(self._job.graph.outputs)
        stay = staying(keep, count, doing) or (False,) * count
        placed, there_alone = self._placed, tuple(lying(feeds))

        async def run(now: Ready) -> list[Any]:
            there = {
                name: one.lying_on(now.backend, f"{doing}, input '{name}'")
                if isinstance(one, DeviceArray)
                else one
                for name, one in feeds.items()
            }
            outs = await now.backend.run_resident(now.program, there, stay)
            placed.last_there = there_alone, stay
            at = now.way.device, now.way.adapter
            return [DeviceArray(o, *at) if isinstance(o, Resident) else o for o in outs]

        strict = self._session.strict if strict is None else strict
        if not strict and placed.ready.backend.lost:
            async with placed.mending:
                await placed.present()
                placed.check_set(doing)
        ready = placed.ready
        try:
            return await run(ready)
        except LOST as error:
            if strict:
                raise
            return await placed.again(ready, error, run, there_alone)
        except RlxError as error:
            near = from_there(error, there_alone[0]) if there_alone else error
            raise near from error.__cause__

    def __repr__(self) -> str:
        return f"CompiledGraph('{self._job.graph.name}' on {self.engine})"

    def explain(self) -> str:
        """Decisions with their reasons, what stays on the device, the plan; as text."""
        lines = [f"{self._job.graph.name} on {self.engine}"]
        lines += [explain_decision(d) for d in self.decisions]
        lines += self._placed.stays()
        return "\n".join([*lines, str(self.plan)])

    def close(self) -> None:
        """Free the program's buffers, once no run needs them. Idempotent."""
        if not self._placed.closed:
            self._placed.closed = True
            drive(self._placed.release())

    def __reduce__(self) -> Any:
        raise Unsupported(
            f"pickle of '{self._job.graph.name}'",
            "a compiled graph holds device memory",
            hint="pickle the arrays and compile again",
        )
