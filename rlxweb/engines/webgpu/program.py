"""Prepared plan on a GPU port: its commands and buffers, its params, and where its
outputs lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rlxweb.compiler.plan import Plan
from rlxweb.core.errors import IndexRefused
from rlxweb.core.message_text import Advice
from rlxweb.engines.protocol import Array, DeviceBuffer, Program
from rlxweb.engines.webgpu.buffers import ParamBuffers, stored_bytes, write_buffer
from rlxweb.engines.webgpu.dtype_demotion import (
    demote_input,
    demoted_dtype,
    widen_output,
)
from rlxweb.engines.webgpu.input_bindings import InputBindings
from rlxweb.gpu.coroutine_runner import AsyncLock
from rlxweb.gpu.port_protocol import BufferCopy, BufferRange, Command
from rlxweb.ir.dtype import DType
from rlxweb.ir.op import TensorType

if TYPE_CHECKING:
    from rlxweb.engines.webgpu.engine import WebGpuEngine


def check_index_fault(context: str, raw: memoryview, offset: int | None) -> None:
    """Raise IndexRefused if a kernel set the fault flag for an index outside its
    table.
    """
    if offset is not None and np.frombuffer(raw, np.uint32, 1, offset)[0]:
        raise IndexRefused(
            context,
            "an index is out of range for its table",
            "expected -rows <= index < rows, where rows is the length of the table",
            Advice(
                "check the index array; a run with {} reports the position",
                device="cpu",
            ),
        )


@dataclass(frozen=True, slots=True)
class OutputLocation:
    """Place of one output in the read-back buffer."""

    offset: int
    type: TensorType

    def decode(self, raw: memoryview) -> Array:
        """Return the output as an array over the bytes just read, without a copy."""
        tensor_type = self.type
        is_bool = tensor_type.dtype is DType.BOOL
        numpy_dtype = demoted_dtype(tensor_type.dtype).numpy
        stored_dtype = np.uint32 if is_bool else numpy_dtype
        flat = np.frombuffer(raw, stored_dtype, tensor_type.numel, self.offset)
        flat = flat != 0 if is_bool else widen_output(flat, tensor_type.dtype.numpy)
        return flat.reshape(tensor_type.shape)


@dataclass(frozen=True, slots=True)
class ReadbackLayout:
    """Layout of outputs and fault flag in the read-back buffer."""

    locations: tuple[OutputLocation, ...]
    copy_sources: tuple[tuple[BufferRange, int], ...]
    fault_offset: int | None
    nbytes: int

    @classmethod
    def pack(
        cls,
        outputs: Sequence[tuple[TensorType, BufferRange | None]],
        fault_handle: int | None,
    ) -> ReadbackLayout:
        """Lay out outputs one after the other, each at a multiple of 16 bytes."""
        locations, copy_sources, end, fault_offset = [], [], 0, None
        for tensor_type, source in outputs:
            locations.append(OutputLocation(end, tensor_type))
            if source is not None:
                copy_sources.append((source, end))
                end += -(-source.nbytes // 16) * 16
        if fault_handle is not None:
            fault_offset = end
            copy_sources.append((BufferRange(fault_handle, 0, 4), end))
            end += 16
        return cls(tuple(locations), tuple(copy_sources), fault_offset, max(end, 16))

    def copy_commands(self, readback: int) -> list[BufferCopy]:
        """Return the commands that fill the read-back buffer."""
        return [
            BufferCopy(source, readback, offset) for source, offset in self.copy_sources
        ]


@dataclass(slots=True, weakref_slot=True, eq=False)
class WebGpuProgram(Program):
    """Prepared plan on one port.

    commands  all of a run: the work, and every output into the read-back buffer
    bindings  the work without these copies, and over which arrays
    step_commands  the work by the steps of the plan; before them stands what begins a
                   run
    fault_handle  the buffer of the flag that an index was refused, and where it is read
    """

    plan: Plan
    engine: WebGpuEngine
    commands: tuple[Command, ...]
    bindings: InputBindings
    step_commands: tuple[tuple[Command, ...], ...]
    input_handles: dict[str, int]
    pipelines: frozenset[int]
    owned_handles: list[int]
    readback_handle: int
    readback_bytes: int
    outputs: tuple[OutputLocation, ...]
    fault_handle: int | None
    fault_offset: int | None
    nbytes: int = 0
    params_nbytes: int = 0
    params: ParamBuffers = field(default_factory=ParamBuffers)
    kernel_variants: Mapping[int, str] = field(default_factory=dict)
    lock: AsyncLock = field(default_factory=AsyncLock)
    is_closed: bool = False

    async def set_param(self, name: str, value: Array | DeviceBuffer) -> None:
        engine, context = self.engine, f"set param '{name}'"
        async with self.lock:
            engine.check_usable(context, self)
            handle = self.params.handles.get(name)
            if handle is None:  # it is of no type of ours and never read
                return
            if isinstance(value, DeviceBuffer):
                engine.arrays.copy_to_param(context, self.plan, name, value, handle)
            else:
                write_buffer(engine.port, handle, demote_input(self.plan, name, value))

    async def get_param(self, name: str) -> Array:
        engine, context = self.engine, f"get param '{name}'"
        param_type = self.plan.graph.named("param")[name].type
        async with self.lock:
            engine.check_usable(context, self)
            handle = self.params.handles[name]
            raw = await engine.port.read(handle, 0, stored_bytes(param_type))
        return OutputLocation(0, param_type).decode(raw)

    async def close(self) -> None:
        async with self.lock:
            self.params.user_count -= not self.is_closed
            self.is_closed = True
            self.engine.free_program(self)
