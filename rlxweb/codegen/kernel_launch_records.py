"""Convert a kernel dispatch to launches: shader text, overrides, uniform bytes,
bindings per chunk.

The last stop before a device: everything here is still plain data, so that command
streams can be compared and printed without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlxweb.codegen.dispatch_splitting import (
    DispatchSplitter,
    IterationChunk,
    fold_grid,
    reads_to_merge,
)
from rlxweb.codegen.wgsl_module import (
    StorageBinding,
    build_module,
    declared_overrides,
    uniform_fields,
)
from rlxweb.core.errors import LimitExceeded
from rlxweb.core.limits import Limits
from rlxweb.core.message_text import Advice
from rlxweb.ir.dtype import PACKED_DTYPES, DType
from rlxweb.ir.lowering import BufferRef, KernelDispatch


@dataclass(frozen=True, slots=True)
class ComputeShader:
    """Description of a compute pipeline: text, `read`/`write` per storage binding,
    overrides.

    is_in_bounds  as of its call
    """

    source: str
    layout: tuple[str, ...]
    overrides: tuple[tuple[str, int], ...]
    is_in_bounds: bool = False


@dataclass(frozen=True, slots=True)
class BoundOperand:
    """Bytes [offset, offset + nbytes) of an operand, bound in place."""

    ref: BufferRef
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class MergedOperands:
    """Operand bytes copied one after the other into one read-only binding."""

    parts: tuple[tuple[BoundOperand, int], ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of a shader: bindings in order, uniform bytes and grid."""

    shader: ComputeShader
    bindings: tuple[BoundOperand | MergedOperands, ...]
    uniforms: bytes
    grid: tuple[int, int, int]
    reports_faults: bool


def element_nbytes(dtype: DType) -> int:
    """Return the bytes of one element in a storage buffer."""
    return dtype.nbytes if dtype in PACKED_DTYPES or dtype is DType.F16 else 4


def build_launches(
    dispatch: KernelDispatch, dtypes: Sequence[DType], limits: Limits
) -> list[KernelLaunch]:
    """Return all launches of a dispatch. `dtypes` are those of its accesses, in order.

    Errors   LimitExceeded when buffers or workgroup memory cannot be brought under.
    """
    if any(axis.size == 0 and axis.kind != "serial" for axis in dispatch.axes):
        return []
    if dispatch.shared_bytes > limits.max_compute_workgroup_storage_size:
        raise LimitExceeded(
            f"kernel '{dispatch.shader}'",
            f"the kernel needs {dispatch.shared_bytes:,} bytes of workgroup memory",
            f"this device has {limits.max_compute_workgroup_storage_size:,} bytes",
            Advice("use {}", device="cpu"),
        )
    element_sizes = tuple(element_nbytes(d) for d in dtypes)
    splitter = DispatchSplitter(
        dispatch, element_sizes, reads_to_merge(dispatch, limits), limits
    )
    # Merged reads are plain u32 words; the vec4 form cannot be mixed with them.
    if splitter.merged_reads and any(access.is_vec4 for access in dispatch.accesses):
        raise LimitExceeded(
            f"kernel '{dispatch.shader}'",
            "the kernel uses more buffers than this device supports, and inputs that "
            "are read as vec4 cannot be merged into one buffer",
        )
    bindings = [
        StorageBinding(dtype, access.mode, k in splitter.merged_reads, access.is_vec4)
        for k, (dtype, access) in enumerate(zip(dtypes, dispatch.accesses, strict=True))
    ]
    source = build_module(dispatch, bindings)
    override_values = {**dispatch.overrides, "WG": splitter.workgroup_size}
    overrides = tuple(sorted(declared_overrides(source, override_values).items()))
    layout = _binding_layout(bindings, dispatch.reports_faults)
    shader = ComputeShader(source, layout, overrides, dispatch.is_in_bounds)
    return [_build_launch(shader, splitter, chunk) for chunk in splitter.chunks()]


def _binding_layout(
    bindings: Sequence[StorageBinding], reports_faults: bool
) -> tuple[str, ...]:
    """Return `read` or `write` for each storage binding, then `uniform`."""
    layout = ["read"] if any(b.is_merged for b in bindings) else []
    layout += [
        "read" if b.mode == "read" else "write" for b in bindings if not b.is_merged
    ]
    return (*layout, *(["write"] if reports_faults else []), "uniform")


def _build_launch(
    shader: ComputeShader, splitter: DispatchSplitter, chunk: IterationChunk
) -> KernelLaunch:
    """Return the launch of one chunk."""
    dispatch, limits = splitter.dispatch, splitter.limits
    align = limits.min_storage_buffer_offset_alignment
    bindings: list[BoundOperand | MergedOperands] = []
    parts: list[tuple[BoundOperand, int]] = []
    bases: list[int] = []
    merged_nbytes = 0
    for k, access in enumerate(dispatch.accesses):
        element_size = splitter.element_nbytes[k]
        first = splitter.lowest_element(access, chunk) * element_size
        ahead = splitter.first_element(access, chunk) - splitter.lowest_element(
            access, chunk
        )
        nbytes = splitter.extent(access, chunk) * element_size
        if k in splitter.merged_reads:
            # Copies move whole words, so a half may stand in front of the first one.
            start = first // 4 * 4
            nbytes = -(-(first + nbytes - start) // 4) * 4
            parts.append((BoundOperand(access.ref, start, nbytes), merged_nbytes))
            bases.append((merged_nbytes + first - start) // element_size + ahead)
            merged_nbytes += nbytes
            continue
        start = first // align * align
        bases.append((first - start) // element_size + ahead)
        bindings.append(
            BoundOperand(access.ref, start, -(-(first + nbytes - start) // 4) * 4)
        )
    if parts:
        bindings.insert(0, MergedOperands(tuple(parts), merged_nbytes))
    uniforms = _uniform_bytes(splitter, chunk, bases)
    max_workgroups = limits.max_compute_workgroups_per_dimension
    grid = fold_grid(splitter.workgroup_count(chunk), max_workgroups)
    return KernelLaunch(
        shader, tuple(bindings), uniforms, grid, dispatch.reports_faults
    )


def _uniform_bytes(
    splitter: DispatchSplitter, chunk: IterationChunk, bases: Sequence[int]
) -> bytes:
    """Return the uniform record of one chunk as bytes."""
    dispatch = splitter.dispatch
    values: dict[str, int | float] = {"items": splitter.item_count(chunk)}
    values |= {f"base{k}": base for k, base in enumerate(bases)}
    for axis, start, size in zip(dispatch.axes, chunk.start, chunk.size, strict=True):
        values[axis.name], values[f"at_{axis.name}"] = size, start
    values |= dict(dispatch.uniforms)
    words = np.zeros(-(-len(values) // 4) * 4, np.uint32)
    for n, (name, wgsl_type) in enumerate(uniform_fields(dispatch)):
        value = values[name]
        if wgsl_type == "f32":
            words[n] = np.float32(value).view(np.uint32)
        elif 0 <= value < 1 << 32:
            words[n] = value
        else:
            raise LimitExceeded(
                f"kernel '{dispatch.shader}'",
                f"uniform {name} is {value}",
                f"expected 0 to {(1 << 32) - 1} (u32)",
                Advice("use a smaller problem or {}", device="cpu"),
            )
    return words.tobytes()
