"""Validation of buffers, pipelines and commands by WebGPU's rules, before any driver
call.

Every port asks here first, so that a mistake in a plan gives the same clear error on a
fake, in a browser and on a real driver, and so that shrunk limits bind everywhere.
Knows buffer sizes, usages and limits; holds no table and touches no driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from rlxweb.core.errors import DeviceError, LimitExceeded
from rlxweb.core.limits import Limits
from rlxweb.gpu.port_protocol import (
    BindingAccess,
    BufferClear,
    BufferCopy,
    BufferRange,
    BufferUsage,
    Command,
    Dispatch,
)

BUFFER_USAGES: tuple[BufferUsage, ...] = ("storage", "uniform", "readback")
BINDING_ACCESSES: tuple[BindingAccess, ...] = ("read", "write", "uniform")


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """Size (padded to 4) and usage of one buffer."""

    nbytes: int
    usage: BufferUsage


def padded_size(nbytes: int) -> int:
    """Return `nbytes` rounded up to a multiple of 4, at least 4."""
    return max(4, (nbytes + 3) // 4 * 4)


def check_buffer(nbytes: int, usage: BufferUsage, limits: Limits) -> BufferFacts:
    """Return the facts of a valid buffer. Raise DeviceError or LimitExceeded."""
    context = f"buffer of {nbytes} bytes ({usage})"
    if usage not in BUFFER_USAGES:
        raise DeviceError(
            context,
            f"unknown usage {usage!r}",
            "the usage must be one of " + ", ".join(BUFFER_USAGES),
        )
    if nbytes < 0:
        raise DeviceError(context, "the size is negative", "the size must be >= 0")
    size = padded_size(nbytes)
    if size > limits.max_buffer_size:
        problem = "the buffer is too large for this device"
        hint = "split the data into several buffers"
        needed = f"{size} bytes"
        raise _limit_error("max_buffer_size", limits, needed, context, problem, hint)
    return BufferFacts(size, usage)


def _limit_error(
    limit: str, limits: Limits, needed: object, context: str, problem: str, hint: str
) -> LimitExceeded:
    """Return the error for a device limit that is exceeded."""
    rule = f"needs {needed}, {limit} is {getattr(limits, limit)}"
    return LimitExceeded(context, problem, rule, hint)


def check_pipeline(
    source: str,
    layout: Sequence[BindingAccess],
    constants: Mapping[str, float],
    limits: Limits,
) -> None:
    """Check the parts of a pipeline. Raise DeviceError or LimitExceeded."""
    check_layout(layout, limits)
    check_workgroup(source, constants, limits)


def check_layout(layout: Sequence[BindingAccess], limits: Limits) -> None:
    """Check a pipeline layout: storage bindings, then at most one uniform.

    Errors   DeviceError, LimitExceeded.
    """
    context = f"pipeline layout {tuple(layout)}"
    for access in layout:
        if access not in BINDING_ACCESSES:
            raise DeviceError(
                context,
                f"unknown access {access!r}",
                "the access must be one of " + ", ".join(BINDING_ACCESSES),
            )
    if "uniform" in layout[:-1]:
        raise DeviceError(
            context,
            "a uniform binding precedes another binding",
            "only the last binding may be uniform",
        )
    storage = len(layout) - list(layout).count("uniform")
    if storage > limits.max_storage_buffers_per_shader_stage:
        limit = "max_storage_buffers_per_shader_stage"
        problem, hint = "too many storage buffers in one shader", "split the step"
        raise _limit_error(limit, limits, storage, context, problem, hint)


def check_workgroup(
    source: str, constants: Mapping[str, float], limits: Limits
) -> None:
    """Check the workgroup size of `main` where it is written in numbers and overrides.

    wgpu takes a size set through an override without checking it, and drivers then do
    as they please; so it is checked here. Errors  LimitExceeded.
    """
    match = _WORKGROUP_SIZE_PATTERN.search(source)
    if match is None:
        return
    overrides = {name: int(value) for name, value in _OVERRIDE_PATTERN.findall(source)}
    overrides.update((name, int(value)) for name, value in constants.items())
    parts = [part.strip().rstrip("ui") for part in match[1].split(",") if part.strip()]
    if not all(part.isdigit() or part in overrides for part in parts):
        return
    size = [int(part) if part.isdigit() else overrides[part] for part in parts]
    for limit, needed in (
        ("max_compute_workgroup_size_x", size[0]),
        ("max_compute_invocations_per_workgroup", prod(size)),
    ):
        if needed > getattr(limits, limit):
            problem = f"the workgroup {tuple(size)} is too large for this device"
            context, hint = "compile a shader", "use a smaller workgroup"
            raise _limit_error(limit, limits, needed, context, problem, hint)


def check_buffer_range(
    context: str,
    span: BufferRange,
    buffers: Mapping[int, BufferFacts],
    *usages: BufferUsage,
) -> BufferFacts:
    """Check a non-empty range, in words of 4 bytes, inside a live buffer of one of
    `usages`.

    Errors   DeviceError.
    """
    facts = _live_buffer(context, span, buffers)
    if usages and facts.usage not in usages:
        raise DeviceError(
            context,
            f"buffer {span.handle} is a {facts.usage} buffer",
            f"the usage must be {' or '.join(usages)}",
        )
    if span.nbytes <= 0:
        raise DeviceError(
            context,
            f"the range in buffer {span.handle} has {span.nbytes} bytes",
            "a range must have at least 4 bytes",
        )
    if span.offset % 4 or span.nbytes % 4:
        raise DeviceError(
            context,
            f"the range in buffer {span.handle} has offset {span.offset}, size "
            f"{span.nbytes}",
            "offset and size must be multiples of 4",
        )
    _check_inside(context, span, facts)
    return facts


def check_write(
    handle: int, offset: int, data: memoryview, buffers: Mapping[int, BufferFacts]
) -> tuple[memoryview, bytes]:
    """Check a write; return (whole words, zero-padded last word or nothing).

    Errors   DeviceError.
    """
    context = f"write {data.nbytes} bytes to buffer {handle}"
    _check_host_range(context, BufferRange(handle, offset, data.nbytes), buffers)
    if offset % 4:
        raise DeviceError(
            context, f"the offset is {offset}", "it must be a multiple of 4"
        )
    if not data.c_contiguous:
        raise DeviceError(
            context, "the data is not contiguous", "", "pass a contiguous copy"
        )
    if data.nbytes == 0:
        return memoryview(b""), b""
    flat = data.cast("B")
    whole_bytes = flat.nbytes // 4 * 4
    return flat[:whole_bytes], bytes(flat[whole_bytes:]).ljust(
        4, b"\0"
    ) if data.nbytes % 4 else b""


def check_read(
    handle: int, offset: int, nbytes: int, buffers: Mapping[int, BufferFacts]
) -> BufferFacts:
    """Check a range that host code reads. Raise DeviceError."""
    context = f"read {nbytes} bytes of buffer {handle}"
    facts = _check_host_range(context, BufferRange(handle, offset, nbytes), buffers)
    if facts.usage == "uniform":
        raise DeviceError(
            context,
            "the buffer is a uniform buffer",
            "only storage and readback buffers can be read",
        )
    return facts


def check_command(
    command: Command,
    buffers: Mapping[int, BufferFacts],
    layouts: Mapping[int, tuple[BindingAccess, ...]],
    limits: Limits,
) -> None:
    """Check one command of a submission. Raise DeviceError or LimitExceeded."""
    if isinstance(command, Dispatch):
        _check_dispatch(command, buffers, layouts, limits)
    elif isinstance(command, BufferCopy):
        _check_copy(command, buffers)
    elif isinstance(command, BufferClear):
        check_buffer_range("clear", command.target, buffers)
    else:
        raise DeviceError(
            "submit",
            f"unknown command {type(command).__name__}",
            "a command must be a Dispatch, BufferCopy or BufferClear",
        )


def _check_host_range(
    context: str, span: BufferRange, buffers: Mapping[int, BufferFacts]
) -> BufferFacts:
    """Check a range that the host reads or writes; return the buffer's facts."""
    facts = _live_buffer(context, span, buffers)
    if span.nbytes < 0:
        raise DeviceError(context, f"the length is {span.nbytes}", "it must be >= 0")
    _check_inside(context, span, facts)
    return facts


def _live_buffer(
    context: str, span: BufferRange, buffers: Mapping[int, BufferFacts]
) -> BufferFacts:
    """Return the facts of a live buffer. Raise DeviceError otherwise."""
    facts = buffers.get(span.handle)
    if facts is None:
        hint = "check that it was created on this device and not destroyed"
        raise DeviceError(context, f"buffer {span.handle} does not exist", "", hint)
    return facts


def _check_inside(context: str, span: BufferRange, facts: BufferFacts) -> None:
    """Raise DeviceError for a range that exceeds its buffer."""
    if span.offset < 0 or span.offset + span.nbytes > facts.nbytes:
        raise DeviceError(
            context,
            f"bytes {span.offset} to {span.offset + span.nbytes} of buffer "
            f"{span.handle} are out of range",
            f"the buffer has {facts.nbytes} bytes",
        )


def _check_copy(command: BufferCopy, buffers: Mapping[int, BufferFacts]) -> None:
    """Check a copy between two buffers."""
    source = command.source
    check_buffer_range("copy from", source, buffers, "storage")
    target = BufferRange(command.target, command.target_offset, source.nbytes)
    check_buffer_range("copy to", target, buffers)
    if source.handle == command.target:
        raise DeviceError(
            "copy",
            f"buffer {source.handle} is both source and target",
            "source and target must be different buffers",
        )


def _check_dispatch(
    command: Dispatch,
    buffers: Mapping[int, BufferFacts],
    layouts: Mapping[int, tuple[BindingAccess, ...]],
    limits: Limits,
) -> None:
    """Check the bindings and the grid of a dispatch."""
    context = f"dispatch {command.label!r}" if command.label else "dispatch"
    layout = layouts.get(command.pipeline)
    if layout is None:
        raise DeviceError(context, f"pipeline {command.pipeline} does not exist")
    if len(layout) != len(command.bindings):
        raise DeviceError(
            context,
            f"got {len(command.bindings)} bindings",
            f"the pipeline expects {len(layout)}",
        )
    for span, access in zip(command.bindings, layout, strict=True):
        _check_binding(context, span, access, buffers, limits)
    _check_aliasing(context, command.bindings, layout)
    if len(command.grid) != 3 or min(command.grid) < 0:
        raise DeviceError(
            context,
            f"the grid is {command.grid}",
            "a grid must be 3 integers >= 0",
        )
    largest = max(command.grid)
    if largest > limits.max_compute_workgroups_per_dimension:
        limit = "max_compute_workgroups_per_dimension"
        problem = f"the grid {command.grid} is too large for this device"
        hint = "spread the grid over more dimensions or split the step"
        raise _limit_error(limit, limits, largest, context, problem, hint)


def _check_binding(
    context: str,
    span: BufferRange,
    access: BindingAccess,
    buffers: Mapping[int, BufferFacts],
    limits: Limits,
) -> None:
    """Check the usage, alignment and size of one binding."""
    kind: BufferUsage = "uniform" if access == "uniform" else "storage"
    check_buffer_range(context, span, buffers, kind)
    rule = f"min_{kind}_buffer_offset_alignment"
    step = getattr(limits, rule)
    if span.offset % step:
        raise DeviceError(
            context,
            f"the offset in buffer {span.handle} is {span.offset}",
            f"it must be a multiple of {step} ({rule})",
        )
    limit = f"max_{kind}_buffer_binding_size"
    if span.nbytes > getattr(limits, limit):
        problem = f"a binding of buffer {span.handle} is too large for this device"
        needed, hint = f"{span.nbytes} bytes", "bind smaller ranges or split the step"
        raise _limit_error(limit, limits, needed, context, problem, hint)


def _check_aliasing(
    context: str, bindings: Sequence[BufferRange], layout: Sequence[BindingAccess]
) -> None:
    """Raise DeviceError if a buffer is bound to read and to write, or written in
    overlapping ranges.
    """
    # WebGPU tracks usage per buffer, not per byte: one dispatch may not bind a buffer
    # both to read and to write even where the ranges are disjoint. Several writable
    # bindings of one buffer are fine as long as they do not overlap.
    written = [s for s, a in zip(bindings, layout, strict=True) if a == "write"]
    handles = {s.handle for s in written}
    for span, access in zip(bindings, layout, strict=True):
        if access != "write" and span.handle in handles:
            raise DeviceError(
                context,
                f"buffer {span.handle} is bound both for reading and for writing",
                "a dispatch must not read and write the same buffer, even in different "
                "ranges",
                "use access 'write' for both bindings, or copy the buffer first",
            )
    written.sort(key=lambda s: (s.handle, s.offset))
    for before, after in pairwise(written):
        if (
            before.handle == after.handle
            and before.offset + before.nbytes > after.offset
        ):
            raise DeviceError(
                context,
                f"two writable bindings of buffer {after.handle} overlap",
                f"the first ends at byte {before.offset + before.nbytes}, the second "
                f"starts at byte {after.offset}",
            )


_WORKGROUP_SIZE_PATTERN = re.compile(r"@workgroup_size\(([^()]*)\)")
_OVERRIDE_PATTERN = re.compile(r"\boverride\s+(\w+)\s*:\s*[ui]32\s*=\s*(\d+)[ui]?\s*;")
