"""A GPU port with no GPU: real bytes, real checks, and failures on request.

Copies and clears are executed; a dispatch is recorded, and executed when a Python
kernel was given for its source. Every rule of WebGPU that a plan can break is checked
(`rules.py`). A list of failures makes chosen calls fail the way devices do; the clock
is pretended, so a time-out costs no time. Knows no tensor and no driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, get_args

from rlxweb.errors import (
    AdapterMissing,
    DeviceError,
    DeviceLost,
    GpuTimeout,
    OutOfMemory,
    SessionClosed,
    ShaderRejected,
    UsageError,
)
from rlxweb.gpu import rules
from rlxweb.gpu.port import (
    Access,
    Clear,
    Command,
    Copy,
    DeviceFacts,
    Dispatch,
    Range,
    Usage,
    Want,
)
from rlxweb.limits import Limits

Kind = Literal[
    "no-adapter",
    "lost-at-birth",
    "lost",
    "lost-unseen",
    "timeout",
    "out-of-memory",
    "shader-refused",
    "map-rejected",
    "short-read",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

_WORKING = ("buffer", "write", "pipeline", "submit")
STRIKES: dict[Kind, tuple[str, ...]] = {
    "no-adapter": ("open",),
    "lost-at-birth": ("open",),
    "lost": (*_WORKING, "read"),
    # As real devices do it: calls go on to succeed, and the next read tells.
    "lost-unseen": _WORKING,
    "timeout": ("open", "read"),
    "out-of-memory": ("buffer",),
    "shader-refused": ("pipeline",),
    "map-rejected": ("read",),
    "short-read": ("read",),
}
"""The verbs that each kind of failure can strike."""

Kernel = Callable[
    [Sequence[memoryview], Mapping[str, float], tuple[int, int, int]], None
]
"""A Python stand-in for a shader: (bindings, constants, grid); writes in place."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, which happens once.

    at    a call number, from 1: the first call from there on that `kind` can strike;
          or a verb: the first call of it
    kind  what goes wrong
    """

    at: int | str
    kind: Kind


@dataclass(frozen=True, slots=True)
class FakePipeline:
    """What a pipeline was made of."""

    source: str
    layout: tuple[Access, ...]
    constants: dict[str, float]


class FakePort:
    """The eight verbs over host memory.

    calls         the verbs called so far, in order
    submissions   the command lists, in order
    pipelines     what each live pipeline was made of
    created       how many buffers, pipelines and bind groups were made
    clock_s       the pretended time
    lost          why the device is lost; empty while it is not
    """

    def __init__(
        self,
        fail: Sequence[Failure] = (),
        *,
        limits: Limits | None = None,
        features: Sequence[str] = (),
        kernels: Mapping[str, Kernel] | None = None,
        deadline_s: float = 30.0,
    ) -> None:
        for failure in fail:
            _check_failure(failure)
        self.deadline_s = deadline_s
        self.calls: list[str] = []
        self.submissions: list[tuple[Command, ...]] = []
        self.pipelines: dict[int, FakePipeline] = {}
        self.created = {"buffers": 0, "pipelines": 0, "bind_groups": 0}
        self.clock_s = 0.0
        self.lost = ""
        self._pending = list(fail)
        self._limits = limits or Limits()
        self._features = frozenset(features)
        self._kernels = dict(kernels or {})
        self._facts: DeviceFacts | None = None
        self._closed = False
        self._unseen = False
        self._next = 1
        self._bytes: dict[int, bytearray] = {}
        self._sizes: dict[int, rules.BufferFacts] = {}
        self._layouts: dict[int, tuple[Access, ...]] = {}
        self._groups: set[tuple[Range, ...]] = set()

    @property
    def facts(self) -> DeviceFacts:
        if self._facts is None:
            raise DeviceError("facts", "the port is not open", "", "await open() first")
        return self._facts

    @property
    def live(self) -> Set[int]:
        return self._sizes.keys() | self._layouts.keys()

    # --- the eight verbs --------------------------------------------------------

    async def open(self, want: Want) -> DeviceFacts:
        """See `Port.open`."""
        self._begin("open")
        if self._facts is not None:
            raise DeviceError("open", "the port is open already")
        if want.backends and "fake" not in want.backends:
            raise AdapterMissing(
                "open a GPU",
                "no adapter could be taken",
                f"this port is a fake, wanted {' or '.join(want.backends)}",
                candidates=(("fake", "its backend is fake"),),
            )
        self._facts = DeviceFacts(
            name="fake",
            vendor="rlxweb",
            backend="fake",
            driver="host memory",
            software=True,
            features=self._features & frozenset(want.features),
            limits=self._limits.lowest(want.limits),
        )
        return self._facts

    def buffer(self, nbytes: int, usage: Usage) -> int:
        """See `Port.buffer`."""
        self._begin("buffer")
        rules.check_buffer(nbytes, usage, self.facts.limits)
        handle = self._handle("buffers")
        size = rules.padded(nbytes)
        self._bytes[handle] = bytearray(size)
        self._sizes[handle] = rules.BufferFacts(size, usage)
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        """See `Port.write`."""
        self._begin("write")
        flat, tail = rules.check_write(handle, offset, data, self._sizes)
        whole = bytes(flat) + tail
        self._bytes[handle][offset : offset + len(whole)] = whole

    async def pipeline(
        self, source: str, layout: Sequence[Access], constants: Mapping[str, float]
    ) -> int:
        """See `Port.pipeline`."""
        self._begin("pipeline", source)
        order = tuple(layout)
        rules.check_layout(order, self.facts.limits)
        rules.check_workgroup(source, constants, self.facts.limits)
        if "fn main(" not in source:
            raise ShaderRejected(
                "compile a shader", "there is no entry point `main`", source=source
            )
        handle = self._handle("pipelines")
        self._layouts[handle] = order
        self.pipelines[handle] = FakePipeline(source, order, dict(constants))
        return handle

    def submit(self, commands: Sequence[Command]) -> None:
        """See `Port.submit`."""
        self._begin("submit")
        for command in commands:
            rules.check_command(command, self._sizes, self._layouts, self.facts.limits)
        self.submissions.append(tuple(commands))
        for command in commands:
            self._execute(command)

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        """See `Port.read`."""
        self._begin("read")
        rules.check_read(handle, offset, nbytes, self._sizes)
        return memoryview(bytearray(self._bytes[handle][offset : offset + nbytes]))

    def destroy(self, handle: int) -> None:
        """See `Port.destroy`."""
        self.calls.append("destroy")
        if self._closed:
            raise SessionClosed("destroy", "the port was closed", "", _OPEN_NEW)
        if handle not in self.live:
            raise DeviceError(f"destroy {handle}", "it is no live buffer or pipeline")
        self._bytes.pop(handle, None)
        self._sizes.pop(handle, None)
        self._layouts.pop(handle, None)
        self.pipelines.pop(handle, None)
        self._groups = {
            key for key in self._groups if all(span.handle != handle for span in key)
        }

    async def close(self) -> None:
        """See `Port.close`."""
        self.calls.append("close")
        self._closed = True
        for table in (self._bytes, self._sizes, self._layouts, self.pipelines):
            table.clear()
        self._groups.clear()

    # --- executing --------------------------------------------------------------

    def _execute(self, command: Command) -> None:
        if isinstance(command, Copy):
            source, at = command.source, command.target_offset
            whole = self._bytes[source.handle]
            moved = whole[source.offset : source.offset + source.nbytes]
            self._bytes[command.target][at : at + source.nbytes] = moved
        elif isinstance(command, Clear):
            span = command.target
            stop = span.offset + span.nbytes
            self._bytes[span.handle][span.offset : stop] = bytes(span.nbytes)
        else:
            self._dispatch(command)

    def _dispatch(self, command: Dispatch) -> None:
        made = self.pipelines[command.pipeline]
        if command.bindings not in self._groups:
            self._groups.add(command.bindings)
            self.created["bind_groups"] += 1
        kernel = self._kernels.get(made.source)
        if kernel is None:
            return
        views = []
        for span, access in zip(command.bindings, made.layout, strict=True):
            view = memoryview(self._bytes[span.handle])
            part = view[span.offset : span.offset + span.nbytes]
            views.append(part if access == "write" else part.toreadonly())
        kernel(views, made.constants, command.grid)

    # --- failing ----------------------------------------------------------------

    def _begin(self, verb: str, source: str = "") -> None:
        self.calls.append(verb)
        if self._closed:
            raise SessionClosed(verb, "the port was closed", "", _OPEN_NEW)
        if self.lost:
            raise DeviceLost(verb, f"the device was lost ({self.lost})", "", _REOPEN)
        if verb != "open" and self._facts is None:
            raise DeviceError(verb, "the port is not open", "", "await open() first")
        kind = self._due(verb)
        if kind is not None:
            self._strike(kind, verb, source)
        if self._unseen and verb == "read":
            self._lose(verb, "it went away unseen before this read")

    def _due(self, verb: str) -> Kind | None:
        for failure in self._pending:
            due = (
                failure.at == verb
                if isinstance(failure.at, str)
                else len(self.calls) >= failure.at
            )
            if due and verb in STRIKES[failure.kind]:
                self._pending.remove(failure)
                return failure.kind
        return None

    def _strike(self, kind: Kind, verb: str, source: str) -> None:
        if kind == "no-adapter":
            raise AdapterMissing(
                "open a GPU",
                "no adapter was found",
                hint="use another device",
                candidates=(("fake", "it was asked to be missing"),),
            )
        if kind == "out-of-memory":
            raise OutOfMemory(verb, "no memory is left", "", "use smaller blocks")
        if kind == "shader-refused":
            raise ShaderRejected(
                "compile a shader", "it was asked to be refused", source=source
            )
        if kind == "timeout":
            self.clock_s += self.deadline_s
            self.lost = f"it did not answer within {self.deadline_s:g} s"
            raise GpuTimeout(
                verb,
                "the device did not finish its work",
                f"deadline {self.deadline_s:g} s",
                _REOPEN,
            )
        if kind == "lost-unseen":
            self._unseen = True
            return
        self._lose(verb, _LOSSES[kind])

    def _lose(self, verb: str, why: str) -> None:
        self.lost = why
        raise DeviceLost(verb, f"the device was lost ({why})", "", _REOPEN)

    def _handle(self, kind: str) -> int:
        self.created[kind] += 1
        self._next += 1
        return self._next - 1


def _check_failure(failure: Failure) -> None:
    verbs = STRIKES.get(failure.kind)
    if verbs is None:
        raise UsageError(
            "fake port",
            f"unknown failure {failure.kind!r}",
            "kinds: " + ", ".join(KINDS),
        )
    if isinstance(failure.at, str) and failure.at not in verbs:
        raise UsageError(
            "fake port",
            f"{failure.kind!r} cannot strike {failure.at!r}",
            f"it strikes {', '.join(verbs)}",
        )


_LOSSES: dict[Kind, str] = {
    "lost-at-birth": "it was lost before its first answer",
    "lost": "it was asked to go",
    "map-rejected": "it refused to map a buffer",
    "short-read": "it mapped fewer bytes than asked for",
}
_OPEN_NEW = "open a new session for more work"
_REOPEN = "open the device again"
