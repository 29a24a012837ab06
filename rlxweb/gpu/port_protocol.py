"""Protocol of GPU ports, implemented over wgpu-py, in a browser and as a fake.

Handles are ints and the port owns the tables behind them: nothing above keeps a driver
object alive, and `len(port.live)` is the leak test. Commands are frozen records; a
whole list is handed over at once. Only a port raises device errors, and only those of
`rlxweb.core.errors`. The verbs that can wait are coroutines; a blocking port completes
them without suspending (`coroutine_runner.py` relies on that).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, Protocol

from rlxweb.core.limits import Limits

BufferUsage = Literal["storage", "uniform", "readback"]
"""storage: bound by shaders, source and target of copies. uniform: bound as uniform,
written by the host. readback: target of copies, read by the host."""

TIMESTAMP_FEATURE = "timestamp-query"
"""Feature of devices that record timestamps."""
MAX_TIMED_LISTS = 2048
"""Maximum number of lists timed at once: a query set holds 4,096 timestamps on every
device.
"""

BindingAccess = Literal["read", "write", "uniform"]

BackendType = Literal["vulkan", "opengl", "directx", "metal", "webgpu", "fake"]


@dataclass(frozen=True, slots=True)
class AdapterRequest:
    """Adapter, features and limits that `open` should request.

    backends  acceptable backend types, best first; empty means any (best first)
    name      part of the adapter's name, any case; empty means any
    features  features to request when the adapter has them
    limits    upper bounds to request; the grant is min(adapter, this)
    index     which of the adapters that fit, counted from 0, and no other in its place;
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
    index: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Name, driver, features and limits of an opened device.

    software   it runs on the CPU (llvmpipe, SwiftShader)
    has_shared_memory  its memory is the host's own
    """

    name: str
    vendor: str
    backend: BackendType
    driver: str
    software: bool
    features: frozenset[str]
    limits: Limits
    has_shared_memory: bool = False


@dataclass(frozen=True, slots=True)
class BufferRange:
    """Range of `nbytes` bytes of buffer `handle` from `offset`."""

    handle: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Command that runs `pipeline` over `grid` workgroups.

    `bindings` are in the order of the pipeline's layout: storage ranges are group 0,
    binding 0, 1, …; a trailing uniform range is group 1, binding 0. `label` names the
    step in error messages.
    """

    pipeline: int
    bindings: tuple[BufferRange, ...]
    grid: tuple[int, int, int]
    label: str = ""


@dataclass(frozen=True, slots=True)
class BufferCopy:
    """Command that copies between buffers; offsets and size are multiples of 4."""

    source: BufferRange
    target: int
    target_offset: int = 0


@dataclass(frozen=True, slots=True)
class BufferClear:
    """Command that fills a buffer range with zeros."""

    target: BufferRange


Command = Dispatch | BufferCopy | BufferClear


class GpuPort(Protocol):
    """GPU device with nine methods. `live_handles` holds every handle not yet
    destroyed; `lost` says why the device is lost and is empty otherwise.

    Every waiting verb obeys `deadline_s`: past it the port counts as lost and raises
    GpuTimeout. After a loss every verb but `destroy` and `close` raises DeviceLost.
    """

    deadline_s: float
    lost: str

    @property
    def facts(self) -> DeviceFacts: ...

    @property
    def compiler(self) -> str:
        """Name and version of the compiler from WGSL to the driver's language; "" if
        unknown.
        """
        ...

    @property
    def live_handles(self) -> Set[int]: ...

    async def open(self, request: AdapterRequest) -> DeviceFacts:
        """Find an adapter, open a device, and verify it with a 4-byte round trip.

        Errors   AdapterMissing (with every candidate and reason), DeviceLost.
        """
        ...

    def create_buffer(
        self, nbytes: int, usage: BufferUsage, *, is_host_written: bool = False
    ) -> int:
        """Create a buffer, its size rounded up to a multiple of 4.

        is_host_written  the host will write it time and again: where a port can, it
                         lies where the host writes it in place
        Errors   OutOfMemory, LimitExceeded.
        """
        ...

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        """Copy host bytes to a buffer; a length that is not a multiple of 4 is
        zero-padded.
        """
        ...

    async def create_pipeline(
        self,
        source: str,
        layout: Sequence[BindingAccess],
        constants: Mapping[str, float],
        *,
        needs_checks: bool = True,
    ) -> int:
        """Compile `main` of a WGSL module. `constants` set its `override`s.

        Of a shader that needs no checks at run time (`needs_checks` is False: no index
        of it is ever outside, no loop endless) they may be left out where a port can.

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

    async def time_command_lists(
        self, lists: Sequence[Sequence[Command]]
    ) -> tuple[int, ...]:
        """Submit the lists one after the other, wait, and return the nanoseconds of
        each.

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
