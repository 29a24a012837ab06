"""The GPU port protocol: nine verbs, so that wgpu-py, a browser and a fake fit a file.

Handles are ints and the port owns the tables behind them: nothing above keeps a driver
object alive, and `len(port.live)` is the leak test. Commands are frozen records; a
whole list is handed over at once. Only a port raises device errors, and only those of
`rlxweb.errors`. The verbs that can wait are coroutines; a blocking port completes them
without suspending (`gpu/drive.py` relies on that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, Protocol

from rlxweb.limits import Limits

Usage = Literal["storage", "uniform", "readback"]
"""storage: bound by shaders, source and target of copies. uniform: bound as uniform,
written by the host. readback: target of copies, read by the host."""

STAMPS = "timestamp-query"
"""The feature of a device that tells times of its own."""
MOST_TIMED = 2048
"""Lists that are timed at once: a set of queries holds 4,096 stamps on every device."""

Access = Literal["read", "write", "uniform"]

BackendType = Literal["vulkan", "opengl", "directx", "metal", "webgpu", "fake"]


@dataclass(frozen=True, slots=True)
class Want:
    """What `open` should look for.

    backends  acceptable backend types, best first; empty means any (best first)
    name      part of the adapter's name, any case; empty means any
    features  features to request when the adapter has them
    limits    upper bounds to request; the grant is min(adapter, this)
    at        which of the adapters that fit, counted from 0, and no other in its place;
              None: the best that opens
    """

    backends: tuple[BackendType, ...] = ()
    name: str = ""
    features: tuple[str, ...] = ("shader-f16", "subgroup", "timestamp-query")
    limits: Limits = field(
        default_factory=lambda: Limits(
            max_buffer_size=4 << 30,
            max_storage_buffer_binding_size=(4 << 30) - 4,
            max_storage_buffers_per_shader_stage=16,
            min_storage_buffer_offset_alignment=32,
            min_uniform_buffer_offset_alignment=32,
            max_compute_invocations_per_workgroup=1024,
            max_compute_workgroup_size_x=1024,
            max_compute_workgroup_storage_size=64 << 10,
        )
    )
    at: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What was opened.

    software   it runs on the CPU (llvmpipe, SwiftShader)
    shared     its memory is the host's own
    """

    name: str
    vendor: str
    backend: BackendType
    driver: str
    software: bool
    features: frozenset[str]
    limits: Limits
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """`nbytes` bytes of buffer `handle` from `offset`."""

    handle: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run `pipeline` over `grid` workgroups.

    `bindings` are in the order of the pipeline's layout: storage ranges are group 0,
    binding 0, 1, …; a trailing uniform range is group 1, binding 0. `label` names the
    step in error messages.
    """

    pipeline: int
    bindings: tuple[Range, ...]
    grid: tuple[int, int, int]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy between buffers; offsets and size are multiples of 4."""

    source: Range
    target: int
    target_offset: int = 0


@dataclass(frozen=True, slots=True)
class Clear:
    """Fill a range with zeros."""

    target: Range


Command = Dispatch | Copy | Clear


class Port(Protocol):
    """The nine verbs. `live` holds every handle not yet destroyed; `lost` says why
    the device is gone, and is empty while it is not.

    Every waiting verb obeys `deadline_s`: past it the port counts as lost and raises
    GpuTimeout. After a loss every verb but `destroy` and `close` raises DeviceLost.
    """

    deadline_s: float
    lost: str

    @property
    def facts(self) -> DeviceFacts: ...

    @property
    def compiler(self) -> str:
        """What turns WGSL into a driver's language, with its version; "" where nobody
        is told.
        """
        ...

    @property
    def live(self) -> Set[int]: ...

    async def open(self, want: Want) -> DeviceFacts:
        """Find an adapter, open a device, prove it with a 4-byte round trip.

        Errors   AdapterMissing (with every candidate and reason), DeviceLost.
        """
        ...

    def buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        """A new buffer, size rounded up to 4.

        is_fed   the host will write it time and again: where a port can, it lies where
                 the host writes it in place
        Errors   OutOfMemory, LimitExceeded.
        """
        ...

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        """Copy host bytes in; a length that is no multiple of 4 is zero-padded."""
        ...

    async def pipeline(
        self,
        source: str,
        layout: Sequence[Access],
        constants: Mapping[str, float],
        *,
        checked: bool = True,
    ) -> int:
        """Compile `main` of a WGSL module. `constants` set its `override`s.

        Of a shader that needs no checks at run time (`checked` is False: no index of
        it is ever outside, no loop endless) they may be left out where a port can.

        Errors   ShaderRejected with the compiler's message and the source.
        """
        ...

    def submit(self, *lists: Sequence[Command]) -> None:
        """Queue the commands of all lists, in order, as one submission; does not wait.

        A list that is a tuple is made ready once, for as long as its buffers live.
        """
        ...

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        """Wait for the queue and return a copy of exactly `nbytes` bytes.

        Errors   GpuTimeout, DeviceLost; never zeros, never a partial array.
        """
        ...

    async def timed(self, lists: Sequence[Sequence[Command]]) -> tuple[int, ...]:
        """Submit the lists one after the other and wait; the nanoseconds of each.

        By the device's own clock: the host's part and the wait are not in them. At most
        MOST_TIMED lists at once.

        Errors   Unsupported where "timestamp-query" was not granted; else as `read`.
        """
        ...

    def destroy(self, handle: int) -> None:
        """Free a buffer or pipeline. An unknown or freed handle is an error."""
        ...

    async def close(self) -> None:
        """Free everything. Idempotent."""
        ...
