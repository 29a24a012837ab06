"""From a Call to launches: shader text, overrides, uniform bytes, bindings per piece.

The last stop before a device: everything here is still plain data, so that command
streams can be compared and printed without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlxweb.advice import Advice
from rlxweb.errors import LimitExceeded
from rlxweb.ir.dtype import NARROW, DType
from rlxweb.ir.lowering import Call, Ref
from rlxweb.kernels.geometry import Geometry, Piece, fold, merged_reads
from rlxweb.kernels.source import (
    Binding,
    declared_overrides,
    module,
    uniform_fields,
)
from rlxweb.limits import Limits


@dataclass(frozen=True, slots=True)
class Shader:
    """A pipeline to make: text, `read`/`write` per storage binding, overrides.

    in_bounds   as of its call
    """

    source: str
    layout: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    in_bounds: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """Bytes [offset, offset + nbytes) of an operand, bound in place."""

    ref: Ref
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """Operand bytes copied one after the other into one read-only binding."""

    parts: tuple[tuple[Bound, int], ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Launch:
    """One dispatch: its shader, bindings in order, uniform bytes and grid."""

    shader: Shader
    bindings: tuple[Bound | Gathered, ...]
    uniforms: bytes
    grid: tuple[int, int, int]
    faults: bool


def width_of(dtype: DType) -> int:
    """Bytes of one element in a storage buffer."""
    return dtype.nbytes if dtype in NARROW or dtype is DType.F16 else 4


def launches(call: Call, dtypes: Sequence[DType], limits: Limits) -> list[Launch]:
    """Every dispatch of a call. `dtypes` are those of its accesses, in order.

    Errors   LimitExceeded when buffers or workgroup memory cannot be brought under.
    """
    if any(axis.size == 0 and axis.kind != "serial" for axis in call.axes):
        return []
    if call.shared_bytes > limits.max_compute_workgroup_storage_size:
        raise LimitExceeded(
            f"kernel '{call.shader}'",
            f"it needs {call.shared_bytes:,} bytes of workgroup memory",
            f"this device has {limits.max_compute_workgroup_storage_size:,}",
            Advice("use {}", device="cpu"),
        )
    widths = tuple(width_of(d) for d in dtypes)
    geometry = Geometry(call, widths, merged_reads(call, limits), limits)
    # Merged reads are plain u32 words; the vec4 form cannot be mixed with them.
    if geometry.merged and any(access.wide for access in call.accesses):
        raise LimitExceeded(f"kernel '{call.shader}'", "merged reads in a vec4 shader")
    bindings = [
        Binding(dtype, access.mode, k in geometry.merged, access.wide)
        for k, (dtype, access) in enumerate(zip(dtypes, call.accesses, strict=True))
    ]
    text = module(call, bindings)
    constants = {**call.constants, "WG": geometry.workgroup}
    overrides = tuple(sorted(declared_overrides(text, constants).items()))
    layout = _layout(bindings, call.faults)
    shader = Shader(text, layout, overrides, call.in_bounds)
    return [_launch(shader, geometry, piece) for piece in geometry.pieces()]


def _layout(bindings: Sequence[Binding], faults: bool) -> tuple[str, ...]:
    out = ["read"] if any(b.merged for b in bindings) else []
    out += ["read" if b.mode == "read" else "write" for b in bindings if not b.merged]
    return (*out, *(["write"] if faults else []), "uniform")


def _launch(shader: Shader, geometry: Geometry, piece: Piece) -> Launch:
    call, limits = geometry.call, geometry.limits
    align = limits.min_storage_buffer_offset_alignment
    bound: list[Bound | Gathered] = []
    parts: list[tuple[Bound, int]] = []
    bases: list[int] = []
    filled = 0
    for k, access in enumerate(call.accesses):
        width = geometry.widths[k]
        first = geometry.lowest(access, piece) * width
        ahead = geometry.origin(access, piece) - geometry.lowest(access, piece)
        nbytes = geometry.extent(access, piece) * width
        if k in geometry.merged:
            # Copies move whole words, so a half may stand in front of the first one.
            start = first // 4 * 4
            nbytes = -(-(first + nbytes - start) // 4) * 4
            parts.append((Bound(access.ref, start, nbytes), filled))
            bases.append((filled + first - start) // width + ahead)
            filled += nbytes
            continue
        start = first // align * align
        bases.append((first - start) // width + ahead)
        bound.append(Bound(access.ref, start, -(-(first + nbytes - start) // 4) * 4))
    if parts:
        bound.insert(0, Gathered(tuple(parts), filled))
    uniforms = _uniform_bytes(geometry, piece, bases)
    side = limits.max_compute_workgroups_per_dimension
    grid = fold(geometry.groups(piece), side)
    return Launch(shader, tuple(bound), uniforms, grid, call.faults)


def _uniform_bytes(geometry: Geometry, piece: Piece, bases: Sequence[int]) -> bytes:
    call = geometry.call
    known: dict[str, int | float] = {"items": geometry.items(piece)}
    known |= {f"base{k}": base for k, base in enumerate(bases)}
    for axis, start, size in zip(call.axes, piece.start, piece.size, strict=True):
        known[axis.name], known[f"at_{axis.name}"] = size, start
    known |= dict(call.values)
    words = np.zeros(-(-len(known) // 4) * 4, np.uint32)
    for n, (name, kind) in enumerate(uniform_fields(call)):
        value = known[name]
        if kind == "f32":
            words[n] = np.float32(value).view(np.uint32)
        elif 0 <= value < 1 << 32:
            words[n] = value
        else:
            raise LimitExceeded(
                f"kernel '{call.shader}'",
                f"uniform {name} = {value}",
                "shader indices are u32",
                Advice("use a smaller problem or {}", device="cpu"),
            )
    return words.tobytes()
