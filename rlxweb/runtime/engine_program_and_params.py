"""Placement of a graph: its program on an engine, its params, and moving both when the
device is lost.

What was given from the host is kept for that day. What lay on the lost device alone is
gone, and a run that needs it says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceLost, DTypeError, GpuTimeout
from rlxweb.cost.decision import Attempt, Candidate
from rlxweb.engines.protocol import (
    Array,
    DeviceBuffer,
    Engine,
    Program,
    closed_error,
)
from rlxweb.gpu.coroutine_runner import AsyncLock
from rlxweb.runtime.input_validation import check_params_set, is_mutable
from rlxweb.select.chooser import DevicePick
from rlxweb.select.device_loss_retry import (
    DEVICE_LOST,
    lost_data_error,
    retried_decision,
    retry_run,
)
from rlxweb.select.graph_job import GraphJob

if TYPE_CHECKING:
    from rlxweb.runtime.session import Session


SharedProgramLookup = Callable[[Engine], Program | None]
"""Look-up of the program on an engine whose params another is to share; None if there
is none.
"""


@dataclass(frozen=True, slots=True)
class PreparedGraph:
    """Graph prepared on an engine, and the candidate that was chosen for it.

    shares_params  another program's params are its own: what they hold is there already
    """

    candidate: Candidate
    engine: Engine
    program: Program
    shares_params: bool = False


class GraphPlacement:
    """Graph and the engine it currently runs on.

    unset_params  params without a value
    decision  why it runs where it does by now
    lock      held by whoever sets a param or moves the graph
    last_device_run  inputs that lay on the device, and for each output whether it
                     stayed, at the last run over arrays that lie there
    """

    def __init__(
        self,
        pick: DevicePick[GraphJob],
        prepared: PreparedGraph,
        params: Iterable[str],
        session: Session,
        find_shared_program: SharedProgramLookup | None = None,
    ) -> None:
        self.prepared, self.decision = prepared, pick.decision
        self.unset_params = set(params)
        self.lock = AsyncLock()
        self.is_warm = self.closed = False
        self._pick, self._session, self._find_shared_program = (
            pick,
            session,
            find_shared_program,
        )
        self._host_values: dict[str, Array] = {}
        # Params whose values lie on the device alone.
        self._device_only_params: set[str] = set()
        self.last_device_run: tuple[Sequence[str], Sequence[bool]] | None = None

    def check_open(self, context: str) -> None:
        """Raise SessionClosed if the graph was closed."""
        if self.closed:
            raise closed_error(context)

    def check_all_params_set(self, context: str) -> None:
        """Raise InputError unless every param has a value."""
        if self.unset_params:
            check_params_set(
                context, self._pick.job.graph.named("param"), self.unset_params
            )

    async def set_param_buffer(self, name: str, buffer: DeviceBuffer) -> None:
        """Set a param from a buffer that is on the engine already."""
        await self.prepared.program.set_param(name, buffer)
        self._host_values.pop(name, None)
        self._device_only_params.add(name)
        self.unset_params.discard(name)

    async def set_param_array(self, name: str, array: Array) -> None:
        """Set a param from a host array.

        Errors   DTypeError for values that the device cannot hold; where rlxweb chose
        it, the graph goes to the CPU instead.
        """
        prepared, previous = self.prepared, self._host_values.get(name)
        if prepared.candidate.device is not Device.CPU:
            # For the day its device is lost. What nobody can write need not be copied
            # to stay what it is.
            array = array.copy() if is_mutable(array) else array
            self._host_values[name] = array
        try:
            if not prepared.engine.lost:
                await prepared.program.set_param(name, array)
        except DEVICE_LOST:
            # The value is kept, and the next run has it where it is done again.
            if self._session.strict:
                raise
        except DTypeError as error:
            try:
                await self._fall_back_to_cpu(error)
            except DTypeError:
                self._host_values.pop(name)
                self._host_values |= {} if previous is None else {name: previous}
                raise
        self.unset_params.discard(name)
        self._device_only_params.discard(name)

    async def recover_run(
        self,
        failed: PreparedGraph,
        error: DeviceLost | GpuTimeout | DTypeError,
        run_on: Callable[[PreparedGraph], Awaitable[list[Any]]],
    ) -> list[Any]:
        """Run again after the device was lost, or could not hold the values."""
        if not isinstance(error, DTypeError):
            return await self.retry_run(failed, error, run_on)
        async with self.lock:
            if self.prepared is failed:
                await self._fall_back_to_cpu(error)
        return await run_on(self.prepared)

    async def _fall_back_to_cpu(self, error: DTypeError) -> None:
        """Move the graph to the CPU, if the CPU might have been chosen.

        Errors   the same, where a device was named or something lies there alone.
        """
        session, failed_device = self._session, self.prepared.candidate.device
        candidates = (
            candidate
            for candidate in self._pick.decision.candidates
            if not candidate.blocker
        )
        is_device_auto = session.device is None and not (
            session.strict or session.adapter
        )
        lacks_cpu = all(candidate.device is not Device.CPU for candidate in candidates)
        if (
            failed_device is Device.CPU
            or lacks_cpu
            or self._device_only_params
            or not is_device_auto
        ):
            raise error
        self.prepared = await self._prepare_on(Candidate(Device.CPU, Device.CPU.label))
        attempts = Attempt(failed_device, str(error), error), Attempt(Device.CPU, "")
        decision = self._pick.decision
        reason = (
            f"{decision.why}; {failed_device.display} cannot represent some "
            f"of the given values"
        )
        self.decision = replace(
            decision, what="device CPU", why=reason, attempts=attempts
        )

    def note_shared_param(self, name: str, array: Array | None) -> None:
        """Record that a program sharing these params set one; None: its value is on the
        device.
        """
        self.unset_params.discard(name)
        self._host_values.pop(name, None)
        self._device_only_params.discard(name)
        if array is None:
            self._device_only_params.add(name)
        elif self.prepared.candidate.device is not Device.CPU:
            self._host_values[name] = array

    async def param_values(self) -> dict[str, Array]:
        """Return every param that has a value; raises the errors of
        `Program.get_param`.
        """
        param_nodes = self._pick.job.graph.named("param")
        values = {
            name: array
            for name, array in self._host_values.items()
            if name in param_nodes
        }
        async with self.lock:
            prepared = self.prepared
            for name in param_nodes:
                if name not in values and name not in self.unset_params:
                    values[name] = await prepared.program.get_param(name)
        return values

    def describe_device_data(self) -> list[str]:
        """Describe what stays on the device from run to run, a line each."""
        lines = []
        if self._device_only_params:
            names = ", ".join(f"'{name}'" for name in sorted(self._device_only_params))
            lines.append(f"params stored only on the device: {names}")
        if self.last_device_run is not None:
            inputs, keep_flags = self.last_device_run
            input_names = ", ".join(f"'{name}'" for name in inputs) or "none"
            output_positions = ", ".join(
                str(position) for position, is_kept in enumerate(keep_flags) if is_kept
            )
            lines.append(
                f"inputs already on the device in the last run: {input_names}; "
                "outputs kept on the device, by position: "
                f"{output_positions or 'none'}"
            )
        return lines

    async def ensure_prepared(self) -> PreparedGraph:
        """Return the prepared graph, on the device opened again if it was lost; the
        caller holds `lock`.
        """
        loss, candidate = self.prepared.engine.lost, self.prepared.candidate
        if loss:
            self.prepared = await self._prepare_on(candidate)
            attempts = Attempt(candidate.device, loss), Attempt(candidate.device, "")
            self.decision = retried_decision(self._pick.decision, attempts)
        return self.prepared

    async def _prepare_on(self, candidate: Candidate) -> PreparedGraph:
        """Prepare the graph on a candidate's engine, with the params whose values the
        host has.
        """
        job, find_shared_program = self._pick.job, self._find_shared_program
        prepared = await self._session._prepare(job, candidate, find_shared_program)
        self.unset_params |= self._device_only_params
        self._device_only_params.clear()
        for name, value in self._host_values.items():
            await prepared.program.set_param(name, value)
        self.is_warm = False
        return prepared

    async def retry_run(
        self,
        failed: PreparedGraph,
        error: DeviceLost | GpuTimeout,
        run_on: Callable[[PreparedGraph], Awaitable[list[Any]]],
        device_inputs: Sequence[str] = (),
    ) -> list[Any]:
        """Retry a lost run where possible; everyone who shares the graph moves along.

        device_inputs  inputs that lay on the device
        """
        self._check_no_data_lost(error, device_inputs)

        async def run(candidate: Candidate) -> list[Any]:
            prepared = self.prepared
            if (
                prepared is failed
                or prepared.engine.lost
                or prepared.candidate != candidate
            ):
                self.check_open(error.doing)
                self.prepared = prepared = await self._prepare_on(candidate)
            self.check_all_params_set(error.doing)
            return await run_on(prepared)

        async with self.lock:
            # Another run may have moved it already, and maybe to another device.
            candidate = (
                failed.candidate if self.prepared is failed else self.prepared.candidate
            )
            outputs, _, attempts = await retry_run(
                error, candidate, self._pick.decision.candidates, run
            )
            self.decision = retried_decision(self._pick.decision, attempts)
            self.is_warm = False
        return outputs

    def _check_no_data_lost(
        self, error: DeviceLost | GpuTimeout, device_inputs: Sequence[str]
    ) -> None:
        """Raise an error of the kind of `error` if data that only the device held was
        lost.
        """
        lost_data = [f"input '{name}'" for name in device_inputs]
        lost_data += [f"param '{name}'" for name in sorted(self._device_only_params)]
        self.unset_params |= self._device_only_params
        self._device_only_params.clear()
        if lost_data:
            raise lost_data_error(error, lost_data) from error

    async def close(self) -> None:
        """Reject later runs, and free the program once no run needs it. Idempotent."""
        if self.closed:
            return
        self.closed = True
        async with self.lock:
            await self.prepared.program.close()
