"""A graph where it runs: prepared on an engine, with its params, moved when it is lost.

What was given from the host is kept for that day. What lay on the lost device alone is
gone, and a run that needs it says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlxweb.backends.protocol import Array, Backend, Program, Resident, released
from rlxweb.choose.again import LOST, done_again, gone_with, told
from rlxweb.choose.chooser import Pick
from rlxweb.choose.graphs import GraphJob
from rlxweb.decision.attempt import Attempt
from rlxweb.decision.candidate import Candidate
from rlxweb.device import Device
from rlxweb.errors import DeviceLost, DTypeError, GpuTimeout
from rlxweb.gpu.turns import Turn
from rlxweb.runtime.feeds import check_params_set, may_change

if TYPE_CHECKING:
    from rlxweb.runtime.session import Session


Beside = Callable[[Backend], Program | None]
"""The program on an engine whose params another is to share, if there is one."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A graph prepared on an engine, and the way that led there.

    shares   another program's params are its own: what they hold is there already
    """

    way: Candidate
    backend: Backend
    program: Program
    shares: bool = False


class Placed:
    """One graph and the engine it is on by now.

    unset     params without a value
    decision  why it runs where it does by now
    mending   held by whoever sets a param or moves the graph
    last_there  inputs that lay on the device, and for each output whether it stayed, at
              the last run over arrays that lie there
    """

    def __init__(
        self,
        pick: Pick[GraphJob],
        ready: Ready,
        params: Iterable[str],
        session: Session,
        beside: Beside | None = None,
    ) -> None:
        self.ready, self.decision = ready, pick.decision
        self.unset = set(params)
        self.mending = Turn()
        self.is_warm = self.closed = False
        self._pick, self._session, self._beside = pick, session, beside
        self._values: dict[str, Array] = {}
        # Params whose values lie on the device alone.
        self._there: set[str] = set()
        self.last_there: tuple[Sequence[str], Sequence[bool]] | None = None

    def check_open(self, doing: str) -> None:
        """Errors  SessionClosed."""
        if self.closed:
            raise released(doing)

    def check_set(self, doing: str) -> None:
        """Has every param a value? Errors  InputError."""
        if self.unset:
            check_params_set(doing, self._pick.job.graph.named("param"), self.unset)

    async def set_resident(self, name: str, value: Resident) -> None:
        """A param from what lies on the engine already."""
        ready = self.ready
        await ready.backend.set_param_resident(ready.program, name, value)
        self._values.pop(name, None)
        self._there.add(name)
        self.unset.discard(name)

    async def set_array(self, name: str, array: Array) -> None:
        """A param from the host.

        Errors   DTypeError for values that the device cannot hold; where rlxweb chose
        it, the graph goes to the CPU instead.
        """
        ready, before = self.ready, self._values.get(name)
        if ready.way.device is not Device.CPU:
            # For the day its device is lost. What nobody can write need not be copied
            # to stay what it is.
            array = array.copy() if may_change(array) else array
            self._values[name] = array
        try:
            if not ready.backend.lost:
                await ready.backend.set_param(ready.program, name, array)
        except LOST:
            # The value is kept, and the next run has it where it is done again.
            if self._session.strict:
                raise
        except DTypeError as error:
            try:
                await self._leave(error)
            except DTypeError:
                self._values.pop(name)
                self._values |= {} if before is None else {name: before}
                raise
        self.unset.discard(name)
        self._there.discard(name)

    async def otherwise(
        self,
        gone: Ready,
        error: DeviceLost | GpuTimeout | DTypeError,
        work: Callable[[Ready], Awaitable[list[Any]]],
    ) -> list[Any]:
        """A run that was lost, or of values that the device cannot hold, done again."""
        if not isinstance(error, DTypeError):
            return await self.again(gone, error, work)
        async with self.mending:
            if self.ready is gone:
                await self._leave(error)
        return await work(self.ready)

    async def _leave(self, error: DTypeError) -> None:
        """From now on the CPU has the graph, if it might have been chosen.

        Errors   the same, where a device was named or something lies there alone.
        """
        session, gone = self._session, self.ready.way.device
        ways = (one for one in self._pick.decision.candidates if not one.blocker)
        is_open = session.device is None and not (session.strict or session.adapter)
        is_there = all(one.device is not Device.CPU for one in ways)
        if gone is Device.CPU or is_there or self._there or not is_open:
            raise error
        self.ready = await self._moved(Candidate(Device.CPU, Device.CPU.label))
        tries = Attempt(gone, str(error), error), Attempt(Device.CPU, "")
        before = self._pick.decision
        why = f"{before.why}; {gone.display} cannot hold values that were given"
        self.decision = replace(before, what="device CPU", why=why, attempts=tries)

    def knows(self, name: str, array: Array | None) -> None:
        """Another program set a param that is this one's too; None: one of there."""
        self.unset.discard(name)
        self._values.pop(name, None)
        self._there.discard(name)
        if array is None:
            self._there.add(name)
        elif self.ready.way.device is not Device.CPU:
            self._values[name] = array

    async def values(self) -> dict[str, Array]:
        """Every param that has a value. Errors  those of `Backend.get_param`."""
        every = self._pick.job.graph.named("param")
        found = {name: one for name, one in self._values.items() if name in every}
        async with self.mending:
            ready = self.ready
            for name in every:
                if name not in found and name not in self.unset:
                    given = await ready.backend.get_param(ready.program, name)
                    found[name] = given
        return found

    def stays(self) -> list[str]:
        """What lies on the device from run to run, a line each."""
        lines = []
        if self._there:
            names = ", ".join(f"'{name}'" for name in sorted(self._there))
            lines.append(f"params that lie on the device alone: {names}")
        if self.last_there is not None:
            inputs, stay = self.last_there
            taken = ", ".join(f"'{name}'" for name in inputs) or "none"
            left = ", ".join(str(at) for at, stays in enumerate(stay) if stays)
            lines.append(
                f"last run: inputs that lay there: {taken}; "
                f"outputs that stayed: {left or 'none'}"
            )
        return lines

    async def present(self) -> Ready:
        """Where it runs, opened anew if it was lost; asked by who is mending."""
        lost, way = self.ready.backend.lost, self.ready.way
        if lost:
            self.ready = await self._moved(way)
            tries = Attempt(way.device, lost), Attempt(way.device, "")
            self.decision = told(self._pick.decision, tries)
        return self.ready

    async def _moved(self, way: Candidate) -> Ready:
        """The graph on the engine of a way, with the params that are known here."""
        job, beside = self._pick.job, self._beside
        now = await self._session._prepared(job, way, beside)
        self.unset |= self._there
        self._there.clear()
        for name, value in self._values.items():
            await now.backend.set_param(now.program, name, value)
        self.is_warm = False
        return now

    async def again(
        self,
        gone: Ready,
        error: DeviceLost | GpuTimeout,
        work: Callable[[Ready], Awaitable[list[Any]]],
        lying: Sequence[str] = (),
    ) -> list[Any]:
        """The same run where it can be done; whoever shares the graph moves along.

        lying   inputs that lay on the device
        """
        self._check_nothing_gone(error, lying)

        async def run(way: Candidate) -> list[Any]:
            now = self.ready
            if now is gone or now.backend.lost or now.way != way:
                self.check_open(error.doing)
                self.ready = now = await self._moved(way)
            self.check_set(error.doing)
            return await work(now)

        async with self.mending:
            # Another run may have moved it already, and maybe to another device.
            way = gone.way if self.ready is gone else self.ready.way
            outs, _, tries = await done_again(
                error, way, self._pick.decision.candidates, run
            )
            self.decision = told(self._pick.decision, tries)
            self.is_warm = False
        return outs

    def _check_nothing_gone(
        self, error: DeviceLost | GpuTimeout, lying: Sequence[str]
    ) -> None:
        """What lay on the device alone went with it. Errors  of the kind of `error`."""
        gone = [f"input '{name}'" for name in lying]
        gone += [f"param '{name}'" for name in sorted(self._there)]
        self.unset |= self._there
        self._there.clear()
        if gone:
            raise gone_with(error, gone) from error

    async def release(self) -> None:
        """Free the program, once no run needs it."""
        async with self.mending:
            await self.ready.backend.release(self.ready.program)
