"""GPU port that executes nothing and records buffers, writes, pipelines and commands.

A plan prepared on it is the plan of a browser tab on a GPU: the facts are a browser's,
the limits WebGPU's defaults or what the caller raises them to. Whoever writes the plan
down reads `buffers`, `writes`, `pipelines`. Nothing can be read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlxweb.core.errors import AdapterMissing, Unsupported
from rlxweb.core.limits import Limits
from rlxweb.gpu import command_validation
from rlxweb.gpu.command_validation import BufferFacts
from rlxweb.gpu.port_base import PortBase
from rlxweb.gpu.port_protocol import (
    AdapterRequest,
    BindingAccess,
    BufferUsage,
    Command,
    DeviceFacts,
)


@dataclass(frozen=True, slots=True)
class RecordedWrite:
    """Host bytes written to a buffer from `offset`; `tail` fills the last word.

    data   the caller's own memory: who records a write does not change it afterwards
    """

    handle: int
    offset: int
    data: memoryview
    tail: bytes = b""

    @property
    def nbytes(self) -> int:
        """Number of bytes written, the tail included."""
        return self.data.nbytes + len(self.tail)


@dataclass(frozen=True, slots=True)
class RecordedPipeline:
    """Source, layout and constants of a pipeline."""

    source: str
    layout: tuple[BindingAccess, ...]
    constants: dict[str, float]


class RecordingPort(PortBase):
    """GPU port that records its calls as data; `software` makes it report a software
    adapter.

    writes       what the host wrote, in order
    pipelines    by handle
    submissions  the command lists, in order
    """

    def __init__(
        self,
        limits: Limits | None = None,
        features: Sequence[str] = (),
        *,
        software: bool = False,
    ) -> None:
        super().__init__(30.0, "buffers", "pipelines")
        self.writes: list[RecordedWrite] = []
        self.submissions: list[tuple[Command, ...]] = []
        self.pipelines: dict[int, RecordedPipeline] = self._handle_table.pipelines
        self._limits = limits or Limits()
        self._features = frozenset(features)
        self._software = software

    @property
    def buffers(self) -> Mapping[int, BufferFacts]:
        """Size and usage of each live buffer, by handle."""
        return self._handle_table.buffer_facts

    async def open(self, request: AdapterRequest) -> DeviceFacts:
        """Return the facts of a browser's device with the given limits and features."""
        self._check_can_open(self._facts)
        if request.backends and "webgpu" not in request.backends:
            raise AdapterMissing(
                "open a RecordingPort",
                f"{' or '.join(request.backends)} was requested",
                "a RecordingPort supports only 'webgpu'",
            )
        self._facts = DeviceFacts(
            name="a browser's CPU" if self._software else "a browser's GPU",
            vendor="",
            backend="webgpu",
            driver="",
            software=self._software,
            features=self._features & frozenset(request.features),
            limits=self._limits.intersect(request.limits),
        )
        return self._facts

    def create_buffer(
        self, nbytes: int, usage: BufferUsage, *, is_host_written: bool = False
    ) -> int:
        """Record a buffer and return its handle."""
        self._check_usable("buffer", self._facts)
        facts = command_validation.check_buffer(nbytes, usage, self.facts.limits)
        handle = self._new_handle("buffers")
        self._handle_table.buffer_facts[handle] = facts
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        """Record host bytes written to a buffer."""
        self._check_usable("write", self._facts)
        flat, tail = command_validation.check_write(
            handle, offset, data, self._handle_table.buffer_facts
        )
        if flat.nbytes or tail:
            self.writes.append(RecordedWrite(handle, offset, flat, tail))

    async def create_pipeline(
        self,
        source: str,
        layout: Sequence[BindingAccess],
        constants: Mapping[str, float],
        *,
        needs_checks: bool = True,
    ) -> int:
        """Record a pipeline and return its handle."""
        self._check_usable("pipeline", self._facts)
        accesses = tuple(layout)
        command_validation.check_pipeline(
            source, accesses, constants, self.facts.limits
        )
        handle = self._new_handle("pipelines")
        self._handle_table.pipeline_layouts[handle] = accesses
        self.pipelines[handle] = RecordedPipeline(source, accesses, dict(constants))
        return handle

    def submit(self, *lists: Sequence[Command]) -> None:
        """Check and record the commands of all lists as one submission."""
        self._check_usable("submit", self._facts)
        commands = [command for command_list in lists for command in command_list]
        for command in commands:
            self.check_command(command)
        self.submissions.append(tuple(commands))

    def check_command(self, command: Command) -> None:
        """Check a command by WebGPU's rules. Raise DeviceError or LimitExceeded."""
        self._handle_table.check_command(command, self.facts.limits)

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        """Raise Unsupported: nothing is computed."""
        self._check_usable("read", self._facts)
        raise Unsupported(
            f"read {nbytes} bytes of buffer {handle}",
            "a RecordingPort records commands but does not execute them",
            hint="run the graph on a device",
        )

    def destroy(self, handle: int) -> None:
        """Forget a buffer or pipeline and the writes to it."""
        self._check_destroy(handle)
        self._handle_table.remove(handle)
        self.writes = [write for write in self.writes if write.handle != handle]

    async def close(self) -> None:
        """Forget everything recorded."""
        self._closed = True
        self._handle_table.clear()
        self.writes.clear()
        self.submissions.clear()
