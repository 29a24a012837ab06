"""Base class of GPU ports: handle table, state checks and the self-test of a device.

The errors of a port that is in the wrong state are made here, once. Knows no driver:
what the tables hold beside sizes and layouts is the port's own.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from rlxweb.core.errors import DeviceError, DeviceLost, SessionClosed, Unsupported
from rlxweb.core.limits import Limits
from rlxweb.gpu.command_validation import BufferFacts, check_command
from rlxweb.gpu.port_protocol import (
    AdapterRequest,
    BindingAccess,
    BufferCopy,
    BufferRange,
    Command,
    DeviceFacts,
    Dispatch,
    GpuPort,
)

_SELF_TEST_SHADER = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1) fn main() { y[0] = x[0] * 3u + 1u; }
"""


@dataclass(slots=True)
class HandleTable:
    """Native objects and facts behind the handles of one port."""

    buffers: dict[int, Any] = field(default_factory=dict)
    buffer_facts: dict[int, BufferFacts] = field(default_factory=dict)
    pipelines: dict[int, Any] = field(default_factory=dict)
    pipeline_layouts: dict[int, tuple[BindingAccess, ...]] = field(default_factory=dict)

    def check_command(self, command: Command, limits: Limits) -> None:
        """Check one command of a submission. Raise DeviceError or LimitExceeded."""
        check_command(command, self.buffer_facts, self.pipeline_layouts, limits)

    def remove(self, handle: int) -> Any:
        """Remove a handle; return the native object of a buffer, None for a
        pipeline.
        """
        for table in (self.buffer_facts, self.pipeline_layouts, self.pipelines):
            table.pop(handle, None)
        return self.buffers.pop(handle, None)

    def clear(self) -> None:
        """Remove all handles."""
        for table in (
            self.buffer_facts,
            self.pipeline_layouts,
            self.pipelines,
            self.buffers,
        ):
            table.clear()


class PortBase:
    """Base class of ports; `created_counts` counts the objects created, by kind."""

    def __init__(self, deadline_s: float, *kinds: str) -> None:
        self.deadline_s = deadline_s
        self.lost = ""
        self.created_counts = dict.fromkeys(kinds, 0)
        self._closed = False
        self._facts: DeviceFacts | None = None
        self._handle_table = HandleTable()
        self._next_handle = 1

    @property
    def facts(self) -> DeviceFacts:
        """Facts of the open device. Raise DeviceError if the port is not open."""
        if self._facts is None:
            raise _not_open_error("facts")
        return self._facts

    @property
    def compiler(self) -> str:
        """Name and version of the shader compiler; "" if unknown."""
        return ""

    @property
    def live_handles(self) -> Set[int]:
        """Handles of all buffers and pipelines not yet destroyed."""
        return (
            self._handle_table.buffer_facts.keys()
            | self._handle_table.pipeline_layouts.keys()
        )

    async def time_command_lists(
        self, lists: Sequence[Sequence[Command]]
    ) -> tuple[int, ...]:
        """Raise Unsupported: this port has no device timestamps."""
        self._check_not_closed("timed")
        raise Unsupported(
            f"time {len(lists)} lists of commands",
            "this device does not support timestamps",
            "the feature timestamp-query is required",
            "wait for each list of commands and measure the elapsed time",
        )

    def _check_not_closed(self, verb: str) -> None:
        """Raise DeviceLost or SessionClosed if the port was closed."""
        if self._closed and self.lost:
            raise self._lost_error(verb)
        if self._closed:
            hint = "open a new session"
            raise SessionClosed(verb, "the GPU port is closed", "", hint)

    def _check_can_open(self, device: object) -> None:
        """Raise an error if the port was closed or is open already."""
        self._check_not_closed("open")
        if device is not None:
            raise DeviceError("open", "the GPU port is already open")

    def _check_usable(self, verb: str, device: object) -> None:
        """Raise an error if the port is closed, lost or not open."""
        self._check_not_closed(verb)
        if self.lost:
            raise self._lost_error(verb)
        if device is None:
            raise _not_open_error(verb)

    def _lost_error(self, verb: str) -> DeviceLost:
        """Return the error for a lost device."""
        problem = f"the device was lost ({self.lost})"
        return DeviceLost(verb, problem, "", "open the device again")

    def _check_destroy(self, handle: int) -> None:
        """Raise an error unless the handle is live."""
        self._check_not_closed("destroy")
        if handle not in self.live_handles:
            raise DeviceError(
                f"destroy {handle}", "no buffer or pipeline with this handle exists"
            )

    def _new_handle(self, kind: str) -> int:
        """Return a new handle and count the object."""
        self.created_counts[kind] += 1
        self._next_handle += 1
        return self._next_handle - 1

    async def _verify_device(
        self,
        facts: DeviceFacts,
        features: Set[str],
        granted: Limits,
        request: AdapterRequest,
    ) -> DeviceFacts:
        """Run the self-test on an open device and return its facts."""
        # Proven at full limits, since a shrunk record may be too small for the proof.
        self._facts = replace(facts, features=frozenset(features), limits=granted)
        counts = dict(self.created_counts)
        await _run_self_test(self)  # type: ignore[arg-type]  # the verbs are the port's own
        self.created_counts.update(counts)
        self._facts = replace(self._facts, limits=granted.intersect(request.limits))
        return self._facts


def _not_open_error(verb: str) -> DeviceError:
    """Return the error for a port that is not open."""
    return DeviceError(
        verb, "the GPU port is not open", "", "call `await open()` first"
    )


def limits_from_driver(values: dict[str, int]) -> Limits:
    """Return limits reported by a driver, sizes rounded down to whole words."""
    # Sizes are used in words of 4 bytes; llvmpipe reports 2**31 - 1.
    for name in ("max_buffer_size", "max_storage_buffer_binding_size"):
        values[name] = values[name] // 4 * 4
    return Limits(**values)


def command_handles(command: Command) -> tuple[int, ...]:
    """Return the handles of the buffers and the pipeline that a command uses."""
    if isinstance(command, Dispatch):
        return (command.pipeline, *(span.handle for span in command.bindings))
    if isinstance(command, BufferCopy):
        return command.source.handle, command.target
    return (command.target.handle,)


async def _run_self_test(port: GpuPort) -> None:
    """Verify the result of a trivial shader; leave no objects behind.

    A device may be lost at birth, and most calls on a lost device seem to succeed; so
    four bytes go there, through a shader and back.

    Errors   DeviceError for a wrong answer, and whatever the port raises.
    """
    x, y = port.create_buffer(4, "storage"), port.create_buffer(4, "storage")
    readback = port.create_buffer(4, "readback")
    kernel = await port.create_pipeline(_SELF_TEST_SHADER, ("read", "write"), {})
    port.write(x, 0, memoryview(b"\x05\0\0\0"))
    spans = (BufferRange(x, 0, 4), BufferRange(y, 0, 4))
    port.submit(
        [Dispatch(kernel, spans, (1, 1, 1), "proof"), BufferCopy(spans[1], readback)]
    )
    result = bytes(await port.read(readback, 0, 4))
    for handle in (x, y, readback, kernel):
        port.destroy(handle)
    if result != b"\x10\0\0\0":
        raise DeviceError(
            "self-test of the device",
            f"a test shader returned {result.hex()}",
            "expected 10000000",
            "update the driver, or choose another device",
        )
