"""A GPU port that runs nothing: it keeps what was asked of it, as plain data.

A plan prepared on it is the plan of a browser tab on a GPU: the facts are a browser's,
the limits WebGPU's defaults or what the caller raises them to. Whoever writes the plan
down reads `buffers`, `writes`, `pipelines`. Nothing can be read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlxweb.errors import AdapterMissing, Unsupported
from rlxweb.gpu import rules
from rlxweb.gpu.books import Books
from rlxweb.gpu.port import Access, Command, DeviceFacts, Usage, Want
from rlxweb.gpu.rules import BufferFacts
from rlxweb.limits import Limits


@dataclass(frozen=True, slots=True)
class RecordedWrite:
    """Host bytes that go into a buffer from `offset` on; `tail` fills the last word.

    data   the caller's own memory: who records a write does not change it afterwards
    """

    handle: int
    offset: int
    data: memoryview
    tail: bytes = b""

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + len(self.tail)


@dataclass(frozen=True, slots=True)
class RecordedPipeline:
    """What a pipeline is made of."""

    source: str
    layout: tuple[Access, ...]
    constants: dict[str, float]


class RecordingPort(Books):
    """The nine verbs as data; `software`: of a browser that pretends to have a GPU.

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
        self.pipelines: dict[int, RecordedPipeline] = self._tables.pipelines
        self._limits = limits or Limits()
        self._features = frozenset(features)
        self._software = software

    @property
    def buffers(self) -> Mapping[int, BufferFacts]:
        """Size and usage of each live buffer, by handle, as they were made."""
        return self._tables.sizes

    async def open(self, want: Want) -> DeviceFacts:
        self._check_opening(self._facts)
        if want.backends and "webgpu" not in want.backends:
            raise AdapterMissing(
                "open a recording port",
                f"{' or '.join(want.backends)} was asked for",
                "what it records is for a browser's WebGPU",
            )
        self._facts = DeviceFacts(
            name="a browser's CPU" if self._software else "a browser's GPU",
            vendor="",
            backend="webgpu",
            driver="",
            software=self._software,
            features=self._features & frozenset(want.features),
            limits=self._limits.lowest(want.limits),
        )
        return self._facts

    def buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        self._check_usable("buffer", self._facts)
        made = rules.check_buffer(nbytes, usage, self.facts.limits)
        handle = self._handle("buffers")
        self._tables.sizes[handle] = made
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        self._check_usable("write", self._facts)
        flat, tail = rules.check_write(handle, offset, data, self._tables.sizes)
        if flat.nbytes or tail:
            self.writes.append(RecordedWrite(handle, offset, flat, tail))

    async def pipeline(
        self,
        source: str,
        layout: Sequence[Access],
        constants: Mapping[str, float],
        *,
        checked: bool = True,
    ) -> int:
        self._check_usable("pipeline", self._facts)
        order = tuple(layout)
        rules.check_pipeline(source, order, constants, self.facts.limits)
        handle = self._handle("pipelines")
        self._tables.layouts[handle] = order
        self.pipelines[handle] = RecordedPipeline(source, order, dict(constants))
        return handle

    def submit(self, *lists: Sequence[Command]) -> None:
        self._check_usable("submit", self._facts)
        commands = [command for one in lists for command in one]
        for command in commands:
            self.check(command)
        self.submissions.append(tuple(commands))

    def check(self, command: Command) -> None:
        """What WebGPU would refuse. Errors  DeviceError, LimitExceeded."""
        self._tables.check(command, self.facts.limits)

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        self._check_usable("read", self._facts)
        raise Unsupported(
            f"read {nbytes} bytes of buffer {handle}",
            "this port records and computes nothing",
            hint="run the graph on a device",
        )

    def destroy(self, handle: int) -> None:
        self._check_destroy(handle)
        self._tables.forget(handle)
        self.writes = [one for one in self.writes if one.handle != handle]

    async def close(self) -> None:
        self._closed = True
        self._tables.clear()
        self.writes.clear()
        self.submissions.clear()
