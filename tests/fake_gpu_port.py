"""Fake GPU port that needs no GPU: real bytes, real checks, and failures on request.

Copies and clears are executed; a dispatch is recorded, and executed when a Python
kernel was given for its source. Every rule of WebGPU that a plan can break is checked
(`command_validation.py`). A list of failures makes chosen calls fail the way devices
do; the clock is pretended, so a time-out costs no time. Knows no tensor and no driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rlxweb.core.errors import (
    AdapterMissing,
    GpuTimeout,
    OutOfMemory,
    ShaderRejected,
    UsageError,
)
from rlxweb.core.limits import Limits
from rlxweb.gpu import command_validation
from rlxweb.gpu.port_base import PortBase
from rlxweb.gpu.port_protocol import (
    AdapterRequest,
    BindingAccess,
    BufferClear,
    BufferCopy,
    BufferRange,
    BufferUsage,
    Command,
    DeviceFacts,
    Dispatch,
)

FailureKind = Literal[
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
FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)

_WORK_VERBS = ("buffer", "write", "pipeline", "submit")
FAILING_VERBS: dict[FailureKind, tuple[str, ...]] = {
    "no-adapter": ("open",),
    "lost-at-birth": ("open",),
    "lost": (*_WORK_VERBS, "read"),
    # As real devices do it: calls go on to succeed, and the next read tells.
    "lost-unseen": _WORK_VERBS,
    "timeout": ("open", "read"),
    "out-of-memory": ("buffer",),
    "shader-refused": ("pipeline",),
    "map-rejected": ("read",),
    "short-read": ("read",),
}
"""Verbs that each kind of failure can hit."""

PythonKernel = Callable[
    [Sequence[memoryview], Mapping[str, float], tuple[int, int, int]], None
]
"""Python stand-in for a shader: (bindings, constants, grid); writes in place."""


@dataclass(frozen=True, slots=True)
class InjectedFailure:
    """Failure that is injected once.

    at    a call number, from 1: the first call from there on that `kind` can strike;
          or a verb: the first call of it
    kind  what goes wrong
    """

    at: int | str
    kind: FailureKind


@dataclass(frozen=True, slots=True)
class FakePipeline:
    """Arguments that a pipeline was created from."""

    source: str
    layout: tuple[BindingAccess, ...]
    constants: dict[str, float]
    checked: bool = True


class FakePort(PortBase):
    """GPU port with its nine verbs over host memory.

    calls         the verbs called so far, in order
    submissions   the command lists, in order
    pipelines     what each live pipeline was made of
    created       how many buffers, pipelines and bind groups were made
    host_written  handles of buffers that the host said it will write again and again
    clock_s       the pretended time
    lost          why the device is lost; empty while it is not
    """

    def __init__(
        self,
        fail: Sequence[InjectedFailure] = (),
        *,
        limits: Limits | None = None,
        features: Sequence[str] = (),
        kernels: Mapping[str, PythonKernel] | None = None,
        deadline_s: float = 30.0,
    ) -> None:
        for failure in fail:
            _check_failure(failure)
        super().__init__(deadline_s, "buffers", "pipelines", "bind_groups")
        self.calls: list[str] = []
        self.submissions: list[tuple[Command, ...]] = []
        self.host_written: set[int] = set()
        self.clock_s = 0.0
        self._pending = list(fail)
        self._limits = limits or Limits()
        self._features = frozenset(features)
        self._kernels = dict(kernels or {})
        self._is_lost_unseen = False
        self._bind_groups: set[tuple[BufferRange, ...]] = set()
        self.pipelines: dict[int, FakePipeline] = self._handle_table.pipelines
        self._bytes: dict[int, bytearray] = self._handle_table.buffers

    async def open(self, request: AdapterRequest) -> DeviceFacts:
        self._begin_call("open")
        self._check_can_open(self._facts)
        if request.backends and "fake" not in request.backends:
            raise AdapterMissing(
                "open a GPU",
                "no adapter can be used",
                f"this port is a fake, wanted {' or '.join(request.backends)}",
                candidates=(("fake", "its backend is fake"),),
            )
        self._facts = DeviceFacts(
            name="fake",
            vendor="rlxweb",
            backend="fake",
            driver="host memory",
            software=True,
            features=self._features & frozenset(request.features),
            limits=self._limits.intersect(request.limits),
        )
        return self._facts

    def create_buffer(
        self, nbytes: int, usage: BufferUsage, *, is_host_written: bool = False
    ) -> int:
        self._begin_call("buffer")
        checked = command_validation.check_buffer(nbytes, usage, self.facts.limits)
        handle = self._new_handle("buffers")
        self._bytes[handle] = bytearray(checked.nbytes)
        if is_host_written:
            self.host_written.add(handle)
        self._handle_table.buffer_facts[handle] = checked
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        self._begin_call("write")
        flat, tail = command_validation.check_write(
            handle, offset, data, self._handle_table.buffer_facts
        )
        padded = bytes(flat) + tail
        self._bytes[handle][offset : offset + len(padded)] = padded

    async def create_pipeline(
        self,
        source: str,
        layout: Sequence[BindingAccess],
        constants: Mapping[str, float],
        *,
        needs_checks: bool = True,
    ) -> int:
        self._begin_call("pipeline", source)
        order = tuple(layout)
        command_validation.check_pipeline(source, order, constants, self.facts.limits)
        if "fn main(" not in source:
            raise ShaderRejected(
                "compile a shader", "there is no entry point `main`", source=source
            )
        handle = self._new_handle("pipelines")
        self._handle_table.pipeline_layouts[handle] = order
        self.pipelines[handle] = FakePipeline(
            source, order, dict(constants), needs_checks
        )
        return handle

    def submit(self, *lists: Sequence[Command]) -> None:
        self._begin_call("submit")
        commands = [
            command for commands_of_list in lists for command in commands_of_list
        ]
        for command in commands:
            self._handle_table.check_command(command, self.facts.limits)
        self.submissions.append(tuple(commands))
        for command in commands:
            self._execute(command)

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        self._begin_call("read")
        command_validation.check_read(
            handle, offset, nbytes, self._handle_table.buffer_facts
        )
        return memoryview(bytearray(self._bytes[handle][offset : offset + nbytes]))

    def destroy(self, handle: int) -> None:
        self.calls.append("destroy")
        self._check_destroy(handle)
        self._handle_table.remove(handle)
        self._bind_groups = {
            key
            for key in self._bind_groups
            if all(span.handle != handle for span in key)
        }

    async def close(self) -> None:
        self.calls.append("close")
        self._closed = True
        self._handle_table.clear()
        self._bind_groups.clear()

    def _execute(self, command: Command) -> None:
        if isinstance(command, BufferCopy):
            source, at = command.source, command.target_offset
            source_bytes = self._bytes[source.handle]
            copied = source_bytes[source.offset : source.offset + source.nbytes]
            self._bytes[command.target][at : at + source.nbytes] = copied
        elif isinstance(command, BufferClear):
            span = command.target
            stop = span.offset + span.nbytes
            self._bytes[span.handle][span.offset : stop] = bytes(span.nbytes)
        else:
            self._dispatch(command)

    def _dispatch(self, command: Dispatch) -> None:
        pipeline = self.pipelines[command.pipeline]
        if command.bindings not in self._bind_groups:
            self._bind_groups.add(command.bindings)
            self.created_counts["bind_groups"] += 1
        kernel = self._kernels.get(pipeline.source)
        if kernel is None:
            return
        views = []
        for span, access in zip(command.bindings, pipeline.layout, strict=True):
            view = memoryview(self._bytes[span.handle])
            window = view[span.offset : span.offset + span.nbytes]
            views.append(window if access == "write" else window.toreadonly())
        kernel(views, pipeline.constants, command.grid)

    def _begin_call(self, verb: str, source: str = "") -> None:
        self.calls.append(verb)
        self._check_usable(verb, verb if verb == "open" else self._facts)
        kind = self._pop_due_failure(verb)
        if kind is not None:
            self._inject(kind, verb, source)
        if self._is_lost_unseen and verb == "read":
            self._lose_device(verb, "it went away unseen before this read")

    def _pop_due_failure(self, verb: str) -> FailureKind | None:
        for failure in self._pending:
            at = failure.at
            is_due = at == verb if isinstance(at, str) else at <= len(self.calls)
            if is_due and verb in FAILING_VERBS[failure.kind]:
                self._pending.remove(failure)
                return failure.kind
        return None

    def _inject(self, kind: FailureKind, verb: str, source: str) -> None:
        if kind == "no-adapter":
            raise AdapterMissing(
                "open a GPU",
                "no adapter was found",
                hint="use another device",
                candidates=(("fake", "it was asked to be missing"),),
            )
        if kind == "out-of-memory":
            raise OutOfMemory(verb, "no memory is left", "", "use smaller inputs")
        if kind == "shader-refused":
            raise ShaderRejected(
                "compile a shader", "it was asked to be refused", source=source
            )
        if kind == "timeout":
            self.clock_s += self.deadline_s
            self.lost = f"it did not answer within {self.deadline_s:g} s"
            raise GpuTimeout(
                verb,
                "the device did not finish in time",
                f"deadline {self.deadline_s:g} s",
                "open the device again",
            )
        if kind == "lost-unseen":
            self._is_lost_unseen = True
            return
        self._lose_device(verb, _LOSS_REASONS[kind])

    def _lose_device(self, verb: str, reason: str) -> None:
        self.lost = reason
        raise self._lost_error(verb)


def _check_failure(failure: InjectedFailure) -> None:
    verbs = FAILING_VERBS.get(failure.kind)
    if verbs is None:
        raise UsageError(
            "fake port",
            f"unknown failure {failure.kind!r}",
            "kinds: " + ", ".join(FAILURE_KINDS),
        )
    if isinstance(failure.at, str) and failure.at not in verbs:
        raise UsageError(
            "fake port",
            f"{failure.kind!r} cannot strike {failure.at!r}",
            f"it strikes {', '.join(verbs)}",
        )


_LOSS_REASONS: dict[FailureKind, str] = {
    "lost-at-birth": "it was lost before its first answer",
    "lost": "it was asked to go",
    "map-rejected": "it refused to map a buffer",
    "short-read": "it mapped fewer bytes than asked for",
}
