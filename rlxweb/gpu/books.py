"""What every port keeps of itself: handles and facts, open or lost or closed.

The errors of a port that is in the wrong state are made here, once. Knows no driver:
what the tables hold beside sizes and layouts is the port's own.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from rlxweb.errors import DeviceError, DeviceLost, SessionClosed, Unsupported
from rlxweb.gpu.port import (
    Access,
    Command,
    Copy,
    DeviceFacts,
    Dispatch,
    Port,
    Range,
    Want,
)
from rlxweb.gpu.rules import BufferFacts, check_command
from rlxweb.limits import Limits

_SHADER = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1) fn main() { y[0] = x[0] * 3u + 1u; }
"""


@dataclass(slots=True)
class Tables:
    """The objects and facts behind the handles of one port."""

    buffers: dict[int, Any] = field(default_factory=dict)
    sizes: dict[int, BufferFacts] = field(default_factory=dict)
    pipelines: dict[int, Any] = field(default_factory=dict)
    layouts: dict[int, tuple[Access, ...]] = field(default_factory=dict)

    def check(self, command: Command, limits: Limits) -> None:
        """One command of a submission. Errors  DeviceError, LimitExceeded."""
        check_command(command, self.sizes, self.layouts, limits)

    def forget(self, handle: int) -> Any:
        """The object of a buffer that goes; None for a pipeline."""
        for table in (self.sizes, self.layouts, self.pipelines):
            table.pop(handle, None)
        return self.buffers.pop(handle, None)

    def clear(self) -> None:
        for table in (self.sizes, self.layouts, self.pipelines, self.buffers):
            table.clear()


class Books:
    """The state of a port, for its verbs; `created` counts what was made."""

    def __init__(self, deadline_s: float, *kinds: str) -> None:
        self.deadline_s = deadline_s
        self.lost = ""
        self.created = dict.fromkeys(kinds, 0)
        self._closed = False
        self._facts: DeviceFacts | None = None
        self._tables = Tables()
        self._next = 1

    @property
    def facts(self) -> DeviceFacts:
        if self._facts is None:
            raise _not_open("facts")
        return self._facts

    @property
    def compiler(self) -> str:
        return ""

    @property
    def live(self) -> Set[int]:
        return self._tables.sizes.keys() | self._tables.layouts.keys()

    async def timed(self, lists: Sequence[Sequence[Command]]) -> tuple[int, ...]:
        self._check_not_closed("timed")
        raise Unsupported(
            f"time {len(lists)} lists of commands",
            "this device tells no times of its own",
            "it takes the feature timestamp-query",
            "wait for each list and time that",
        )

    def _check_not_closed(self, verb: str) -> None:
        if self._closed and self.lost:
            raise self._gone(verb)
        if self._closed:
            hint = "open a new session for more work"
            raise SessionClosed(verb, "the port was closed", "", hint)

    def _check_opening(self, opened: object) -> None:
        self._check_not_closed("open")
        if opened is not None:
            raise DeviceError("open", "the port is open already")

    def _check_usable(self, verb: str, opened: object) -> None:
        self._check_not_closed(verb)
        if self.lost:
            raise self._gone(verb)
        if opened is None:
            raise _not_open(verb)

    def _gone(self, verb: str) -> DeviceLost:
        problem = f"the device was lost ({self.lost})"
        return DeviceLost(verb, problem, "", "open the device again")

    def _check_destroy(self, handle: int) -> None:
        self._check_not_closed("destroy")
        if handle not in self.live:
            raise DeviceError(f"destroy {handle}", "it is no live buffer or pipeline")

    def _handle(self, kind: str) -> int:
        self.created[kind] += 1
        self._next += 1
        return self._next - 1

    async def _proven(
        self, facts: DeviceFacts, features: Set[str], granted: Limits, want: Want
    ) -> DeviceFacts:
        """The facts of an open device, which must give a right answer first."""
        # Proven at full limits, since a shrunk record may be too small for the proof.
        self._facts = replace(facts, features=frozenset(features), limits=granted)
        before = dict(self.created)
        await _prove(self)  # type: ignore[arg-type]  # the verbs are the port's own
        self.created.update(before)
        self._facts = replace(self._facts, limits=granted.lowest(want.limits))
        return self._facts


def _not_open(verb: str) -> DeviceError:
    return DeviceError(verb, "the port is not open", "", "await open() first")


def read_limits(found: dict[str, int]) -> Limits:
    """The limits that a driver reports, by our names."""
    # Sizes are used in words of 4 bytes; llvmpipe reports 2**31 - 1.
    for name in ("max_buffer_size", "max_storage_buffer_binding_size"):
        found[name] = found[name] // 4 * 4
    return Limits(**found)


def handles_of(command: Command) -> tuple[int, ...]:
    """The buffers and pipeline a command uses."""
    if isinstance(command, Dispatch):
        return (command.pipeline, *(span.handle for span in command.bindings))
    if isinstance(command, Copy):
        return command.source.handle, command.target
    return (command.target.handle,)


async def _prove(port: Port) -> None:
    """Demand a right answer to a trivial shader; leaves nothing behind.

    A device may be lost at birth, and most calls on a lost device seem to succeed; so
    four bytes go there, through a shader and back.

    Errors   DeviceError for a wrong answer, and whatever the port raises.
    """
    x, y = port.buffer(4, "storage"), port.buffer(4, "storage")
    back = port.buffer(4, "readback")
    kernel = await port.pipeline(_SHADER, ("read", "write"), {})
    port.write(x, 0, memoryview(b"\x05\0\0\0"))
    spans = (Range(x, 0, 4), Range(y, 0, 4))
    port.submit([Dispatch(kernel, spans, (1, 1, 1), "proof"), Copy(spans[1], back)])
    answer = bytes(await port.read(back, 0, 4))
    for handle in (x, y, back, kernel):
        port.destroy(handle)
    if answer != b"\x10\0\0\0":
        raise DeviceError(
            "prove the device",
            f"a trivial shader gave {answer.hex()}",
            "it should give 10000000",
            "update the driver, or choose another device",
        )
