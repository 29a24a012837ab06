"""A GPU port with no GPU: real bytes, real checks, and failures on request.

Copies and clears are executed; a dispatch is recorded, and executed when a Python
kernel was given for its source. Every rule of WebGPU that a plan can break is checked
(`rules.py`). A list of failures makes chosen calls fail the way devices do; the clock
is pretended, so a time-out costs no time. Knows no tensor and no driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rlxweb.errors import (
    AdapterMissing,
    GpuTimeout,
    OutOfMemory,
    ShaderRejected,
    UsageError,
)
from rlxweb.gpu import rules
from rlxweb.gpu.books import Books
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
    checked: bool = True


class FakePort(Books):
    """The nine verbs over host memory.

    calls         the verbs called so far, in order
    submissions   the command lists, in order
    pipelines     what each live pipeline was made of
    created       how many buffers, pipelines and bind groups were made
    fed           handles of buffers that the host said it will write again and again
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
        super().__init__(deadline_s, "buffers", "pipelines", "bind_groups")
        self.calls: list[str] = []
        self.submissions: list[tuple[Command, ...]] = []
        self.fed: set[int] = set()
        self.clock_s = 0.0
        self._pending = list(fail)
        self._limits = limits or Limits()
        self._features = frozenset(features)
        self._kernels = dict(kernels or {})
        self._unseen = False
        self._groups: set[tuple[Range, ...]] = set()
        self.pipelines: dict[int, FakePipeline] = self._tables.pipelines
        self._bytes: dict[int, bytearray] = self._tables.buffers

    async def open(self, want: Want) -> DeviceFacts:
        self._begin("open")
        self._check_opening(self._facts)
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

    def buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        self._begin("buffer")
        made = rules.check_buffer(nbytes, usage, self.facts.limits)
        handle = self._handle("buffers")
        self._bytes[handle] = bytearray(made.nbytes)
        if is_fed:
            self.fed.add(handle)
        self._tables.sizes[handle] = made
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        self._begin("write")
        flat, tail = rules.check_write(handle, offset, data, self._tables.sizes)
        whole = bytes(flat) + tail
        self._bytes[handle][offset : offset + len(whole)] = whole

    async def pipeline(
        self,
        source: str,
        layout: Sequence[Access],
        constants: Mapping[str, float],
        *,
        checked: bool = True,
    ) -> int:
        self._begin("pipeline", source)
        order = tuple(layout)
        rules.check_pipeline(source, order, constants, self.facts.limits)
        if "fn main(" not in source:
            raise ShaderRejected(
                "compile a shader", "there is no entry point `main`", source=source
            )
        handle = self._handle("pipelines")
        self._tables.layouts[handle] = order
        self.pipelines[handle] = FakePipeline(source, order, dict(constants), checked)
        return handle

    def submit(self, *lists: Sequence[Command]) -> None:
        self._begin("submit")
        commands = [command for one in lists for command in one]
        for command in commands:
            self._tables.check(command, self.facts.limits)
        self.submissions.append(tuple(commands))
        for command in commands:
            self._execute(command)

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        self._begin("read")
        rules.check_read(handle, offset, nbytes, self._tables.sizes)
        return memoryview(bytearray(self._bytes[handle][offset : offset + nbytes]))

    def destroy(self, handle: int) -> None:
        self.calls.append("destroy")
        self._check_destroy(handle)
        self._tables.forget(handle)
        self._groups = {
            key for key in self._groups if all(span.handle != handle for span in key)
        }

    async def close(self) -> None:
        self.calls.append("close")
        self._closed = True
        self._tables.clear()
        self._groups.clear()

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

    def _begin(self, verb: str, source: str = "") -> None:
        self.calls.append(verb)
        self._check_usable(verb, verb if verb == "open" else self._facts)
        kind = self._due(verb)
        if kind is not None:
            self._strike(kind, verb, source)
        if self._unseen and verb == "read":
            self._lose(verb, "it went away unseen before this read")

    def _due(self, verb: str) -> Kind | None:
        for failure in self._pending:
            at = failure.at
            due = at == verb if isinstance(at, str) else at <= len(self.calls)
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
                "open the device again",
            )
        if kind == "lost-unseen":
            self._unseen = True
            return
        self._lose(verb, _LOSSES[kind])

    def _lose(self, verb: str, why: str) -> None:
        self.lost = why
        raise self._gone(verb)


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
