"""What WebGPU would refuse, checked on plain data before any driver sees it.

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

from rlxweb.errors import DeviceError, LimitExceeded
from rlxweb.gpu.port import Access, Clear, Command, Copy, Dispatch, Range, Usage
from rlxweb.limits import Limits

USAGES: tuple[Usage, ...] = ("storage", "uniform", "readback")
ACCESSES: tuple[Access, ...] = ("read", "write", "uniform")


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """Size (padded to 4) and usage of one buffer."""

    nbytes: int
    usage: Usage


def padded(nbytes: int) -> int:
    """`nbytes` rounded up to a multiple of 4, at least 4."""
    return max(4, (nbytes + 3) // 4 * 4)


def check_buffer(nbytes: int, usage: Usage, limits: Limits) -> BufferFacts:
    """The facts of a buffer that can be made. Errors  DeviceError, LimitExceeded."""
    doing = f"buffer of {nbytes} bytes ({usage})"
    if usage not in USAGES:
        raise DeviceError(
            doing, f"unknown usage {usage!r}", "usages are " + ", ".join(USAGES)
        )
    if nbytes < 0:
        raise DeviceError(doing, "the size is negative", "sizes are 0 or more bytes")
    size = padded(nbytes)
    if size > limits.max_buffer_size:
        problem = "the buffer is too large for this device"
        hint = "split the work over several buffers"
        needs = f"{size} bytes"
        raise _beyond("max_buffer_size", limits, needs, doing, problem, hint)
    return BufferFacts(size, usage)


def _beyond(
    limit: str, limits: Limits, needs: object, doing: str, problem: str, hint: str
) -> LimitExceeded:
    rule = f"needs {needs}, {limit} is {getattr(limits, limit)}"
    return LimitExceeded(doing, problem, rule, hint)


def check_pipeline(
    source: str,
    layout: Sequence[Access],
    constants: Mapping[str, float],
    limits: Limits,
) -> None:
    """What a pipeline is made of. Errors  DeviceError, LimitExceeded."""
    check_layout(layout, limits)
    check_workgroup(source, constants, limits)


def check_layout(layout: Sequence[Access], limits: Limits) -> None:
    """A pipeline layout: storage bindings, then at most one uniform.

    Errors   DeviceError, LimitExceeded.
    """
    doing = f"pipeline layout {tuple(layout)}"
    for access in layout:
        if access not in ACCESSES:
            raise DeviceError(
                doing,
                f"unknown access {access!r}",
                "accesses are " + ", ".join(ACCESSES),
            )
    if "uniform" in layout[:-1]:
        raise DeviceError(
            doing, "a uniform stands before another binding", "only the last may be one"
        )
    storage = len(layout) - list(layout).count("uniform")
    if storage > limits.max_storage_buffers_per_shader_stage:
        limit = "max_storage_buffers_per_shader_stage"
        problem, hint = "too many storage buffers in one shader", "split the step"
        raise _beyond(limit, limits, storage, doing, problem, hint)


def check_workgroup(
    source: str, constants: Mapping[str, float], limits: Limits
) -> None:
    """The workgroup size of `main`, where it is spelled in numbers and overrides.

    wgpu takes a size set through an override without checking it, and drivers then do
    as they please; so it is checked here. Errors  LimitExceeded.
    """
    found = _SIZE.search(source)
    if found is None:
        return
    known = {name: int(value) for name, value in _OVERRIDE.findall(source)}
    known.update((name, int(value)) for name, value in constants.items())
    parts = [part.strip().rstrip("ui") for part in found[1].split(",") if part.strip()]
    if not all(part.isdigit() or part in known for part in parts):
        return
    size = [int(part) if part.isdigit() else known[part] for part in parts]
    for limit, needs in (
        ("max_compute_workgroup_size_x", size[0]),
        ("max_compute_invocations_per_workgroup", prod(size)),
    ):
        if needs > getattr(limits, limit):
            problem = f"the workgroup {tuple(size)} is too large for this device"
            doing, hint = "compile a shader", "use a smaller workgroup"
            raise _beyond(limit, limits, needs, doing, problem, hint)


def check_span(
    doing: str, span: Range, buffers: Mapping[int, BufferFacts], *usages: Usage
) -> BufferFacts:
    """A non-empty range inside a live buffer of one of `usages`, in words of 4 bytes.

    Errors   DeviceError.
    """
    facts = _live(doing, span, buffers)
    if usages and facts.usage not in usages:
        raise DeviceError(
            doing,
            f"buffer {span.handle} is a {facts.usage} buffer",
            f"this takes {' or '.join(usages)}",
        )
    if span.nbytes <= 0:
        raise DeviceError(
            doing, f"{span.nbytes} bytes of buffer {span.handle}", "ranges hold >= 4"
        )
    if span.offset % 4 or span.nbytes % 4:
        raise DeviceError(
            doing,
            f"offset {span.offset}, size {span.nbytes} in buffer {span.handle}",
            "both are multiples of 4",
        )
    _check_inside(doing, span, facts)
    return facts


def check_write(
    handle: int, offset: int, data: memoryview, buffers: Mapping[int, BufferFacts]
) -> tuple[memoryview, bytes]:
    """Host bytes for a buffer: (whole words, zero-padded last word or nothing).

    Errors   DeviceError.
    """
    doing = f"write {data.nbytes} bytes to buffer {handle}"
    _check_host(doing, Range(handle, offset, data.nbytes), buffers)
    if offset % 4:
        raise DeviceError(doing, f"offset {offset}", "offsets are multiples of 4")
    if not data.c_contiguous:
        raise DeviceError(doing, "the data is not contiguous", "", "copy it first")
    if data.nbytes == 0:
        return memoryview(b""), b""
    flat = data.cast("B")
    whole = flat.nbytes // 4 * 4
    return flat[:whole], bytes(flat[whole:]).ljust(4, b"\0") if data.nbytes % 4 else b""


def check_read(
    handle: int, offset: int, nbytes: int, buffers: Mapping[int, BufferFacts]
) -> BufferFacts:
    """A range that host code may read. Errors  DeviceError."""
    doing = f"read {nbytes} bytes of buffer {handle}"
    facts = _check_host(doing, Range(handle, offset, nbytes), buffers)
    if facts.usage == "uniform":
        raise DeviceError(
            doing, "it is a uniform buffer", "storage and readback can be read"
        )
    return facts


def check_command(
    command: Command,
    buffers: Mapping[int, BufferFacts],
    layouts: Mapping[int, tuple[Access, ...]],
    limits: Limits,
) -> None:
    """One command of a submission. Errors  DeviceError, LimitExceeded."""
    if isinstance(command, Dispatch):
        _check_dispatch(command, buffers, layouts, limits)
    elif isinstance(command, Copy):
        _check_copy(command, buffers)
    elif isinstance(command, Clear):
        check_span("clear", command.target, buffers)
    else:
        raise DeviceError(
            "submit",
            f"{type(command).__name__} is no command",
            "commands are Dispatch, Copy and Clear",
        )


def _check_host(
    doing: str, span: Range, buffers: Mapping[int, BufferFacts]
) -> BufferFacts:
    facts = _live(doing, span, buffers)
    if span.nbytes < 0:
        raise DeviceError(doing, f"negative length {span.nbytes}", "lengths are >= 0")
    _check_inside(doing, span, facts)
    return facts


def _live(doing: str, span: Range, buffers: Mapping[int, BufferFacts]) -> BufferFacts:
    facts = buffers.get(span.handle)
    if facts is None:
        hint = "it was never made here, or it was destroyed"
        raise DeviceError(doing, f"{span.handle} is no live buffer", "", hint)
    return facts


def _check_inside(doing: str, span: Range, facts: BufferFacts) -> None:
    if span.offset < 0 or span.offset + span.nbytes > facts.nbytes:
        raise DeviceError(
            doing,
            f"bytes {span.offset} to {span.offset + span.nbytes} of buffer "
            f"{span.handle}",
            f"the buffer holds {facts.nbytes}",
        )


def _check_copy(command: Copy, buffers: Mapping[int, BufferFacts]) -> None:
    source = command.source
    check_span("copy from", source, buffers, "storage")
    target = Range(command.target, command.target_offset, source.nbytes)
    check_span("copy to", target, buffers)
    if source.handle == command.target:
        raise DeviceError(
            "copy",
            f"buffer {source.handle} is source and target",
            "a copy needs two buffers",
        )


def _check_dispatch(
    command: Dispatch,
    buffers: Mapping[int, BufferFacts],
    layouts: Mapping[int, tuple[Access, ...]],
    limits: Limits,
) -> None:
    doing = f"dispatch {command.label!r}" if command.label else "dispatch"
    layout = layouts.get(command.pipeline)
    if layout is None:
        raise DeviceError(doing, f"{command.pipeline} is no live pipeline")
    if len(layout) != len(command.bindings):
        raise DeviceError(
            doing,
            f"{len(command.bindings)} bindings were given",
            f"the pipeline takes {len(layout)}",
        )
    for span, access in zip(command.bindings, layout, strict=True):
        _check_binding(doing, span, access, buffers, limits)
    _check_aliasing(doing, command.bindings, layout)
    if len(command.grid) != 3 or min(command.grid) < 0:
        raise DeviceError(doing, f"grid {command.grid}", "a grid is 3 counts >= 0")
    most = max(command.grid)
    if most > limits.max_compute_workgroups_per_dimension:
        limit = "max_compute_workgroups_per_dimension"
        problem = f"the grid {command.grid} is too large for this device"
        hint = "fold the grid or split the step"
        raise _beyond(limit, limits, most, doing, problem, hint)


def _check_binding(
    doing: str,
    span: Range,
    access: Access,
    buffers: Mapping[int, BufferFacts],
    limits: Limits,
) -> None:
    kind: Usage = "uniform" if access == "uniform" else "storage"
    check_span(doing, span, buffers, kind)
    rule = f"min_{kind}_buffer_offset_alignment"
    step = getattr(limits, rule)
    if span.offset % step:
        raise DeviceError(
            doing,
            f"offset {span.offset} in buffer {span.handle} is not aligned",
            f"{rule} is {step}",
        )
    limit = f"max_{kind}_buffer_binding_size"
    if span.nbytes > getattr(limits, limit):
        problem = f"a binding of buffer {span.handle} is too large for this device"
        needs, hint = f"{span.nbytes} bytes", "bind ranges or split the step"
        raise _beyond(limit, limits, needs, doing, problem, hint)


def _check_aliasing(
    doing: str, bindings: Sequence[Range], layout: Sequence[Access]
) -> None:
    # WebGPU tracks usage per buffer, not per byte: one dispatch may not bind a buffer
    # both to read and to write even where the ranges are disjoint. Several writable
    # bindings of one buffer are fine as long as they do not overlap.
    written = [s for s, a in zip(bindings, layout, strict=True) if a == "write"]
    handles = {s.handle for s in written}
    for span, access in zip(bindings, layout, strict=True):
        if access != "write" and span.handle in handles:
            raise DeviceError(
                doing,
                f"buffer {span.handle} is bound to read and to write",
                "one dispatch uses a buffer one way, whatever the ranges",
                "bind it as write in both places, or copy first",
            )
    written.sort(key=lambda s: (s.handle, s.offset))
    for before, after in pairwise(written):
        if (
            before.handle == after.handle
            and before.offset + before.nbytes > after.offset
        ):
            raise DeviceError(
                doing,
                f"two writable bindings of buffer {after.handle} overlap",
                f"the first ends at {before.offset + before.nbytes}, the second "
                f"starts at {after.offset}",
            )


_SIZE = re.compile(r"@workgroup_size\(([^()]*)\)")
_OVERRIDE = re.compile(r"\boverride\s+(\w+)\s*:\s*[ui]32\s*=\s*(\d+)[ui]?\s*;")
