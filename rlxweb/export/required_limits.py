"""Minimum WebGPU limits that a plan requires of a device.

A page asks its adapter for no more than this, so that a plan made under generous limits
still runs wherever it fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from rlxweb.core.limits import Limits
from rlxweb.gpu.command_recording_port import RecordedPipeline
from rlxweb.gpu.command_validation import BufferFacts
from rlxweb.gpu.js_bridge_conversion import webgpu_limit
from rlxweb.gpu.port_protocol import BufferRange, Command, Dispatch

_STORAGE, _UNIFORM = "storage", "uniform"


def required_limits(
    buffers: Iterable[BufferFacts],
    pipelines: Mapping[int, RecordedPipeline],
    commands: Sequence[Command],
    plan_limits: Limits,
) -> dict[str, int]:
    """Return the minimum limits by WebGPU's names; for a `min…` limit a device may have
    at most that value.

    plan_limits  the limits of the plan: what a shader's text does not tell is no more
    """
    bindings = list(_bound_ranges(pipelines, commands))
    storage = [span for kind, span in bindings if kind == _STORAGE]
    uniform = [span for kind, span in bindings if kind == _UNIFORM]
    grids = [command.grid for command in commands if isinstance(command, Dispatch)]
    layouts = [pipeline.layout for pipeline in pipelines.values()]
    sizes = [
        workgroup_size(pipeline) or _max_workgroup_size(plan_limits)
        for pipeline in pipelines.values()
    ]
    max_shared = plan_limits.max_compute_workgroup_storage_size
    shared = (workgroup_storage_nbytes(pipeline) for pipeline in pipelines.values())
    requirements = {
        "max_buffer_size": [entry.nbytes for entry in buffers],
        "max_storage_buffer_binding_size": [span.nbytes for span in storage],
        "max_uniform_buffer_binding_size": [span.nbytes for span in uniform],
        "max_storage_buffers_per_shader_stage": [
            len(layout) - layout.count("uniform") for layout in layouts
        ],
        "max_compute_workgroups_per_dimension": [max(grid) for grid in grids],
        "max_compute_invocations_per_workgroup": [prod(size) for size in sizes],
        "max_compute_workgroup_size_x": [size[0] for size in sizes],
        "max_compute_workgroup_size_y": [size[1] for size in sizes],
        "max_compute_workgroup_size_z": [size[2] for size in sizes],
        "max_compute_workgroup_storage_size": [
            max_shared if entry is None else entry for entry in shared
        ],
    }
    limits = {
        webgpu_limit(name): max(values, default=0)
        for name, values in requirements.items()
    }
    for name, spans in (("storage", storage), ("uniform", uniform)):
        limit_name = webgpu_limit(f"min_{name}_buffer_offset_alignment")
        limits[limit_name] = _common_alignment(span.offset for span in spans)
    return limits


def _bound_ranges(
    pipelines: Mapping[int, RecordedPipeline], commands: Sequence[Command]
) -> Iterator[tuple[str, BufferRange]]:
    """Yield the kind and range of every buffer binding of the dispatches."""
    for command in commands:
        if isinstance(command, Dispatch):
            layout = pipelines[command.pipeline].layout
            for span, access in zip(command.bindings, layout, strict=True):
                yield (_UNIFORM if access == "uniform" else _STORAGE), span


def _common_alignment(offsets: Iterable[int]) -> int:
    """Return the largest power of two that divides all offsets, at most WebGPU's
    default of 256.
    """
    bits = 256
    for offset in offsets:
        bits |= offset
    return bits & -bits


def _max_workgroup_size(limits: Limits) -> tuple[int, int, int]:
    """Return the largest one-dimensional workgroup size."""
    return limits.max_compute_workgroup_size_x, 1, 1


# --- what a shader's text tells ---------------------------------------------------

_WORKGROUP_SIZE = re.compile(r"@workgroup_size\(([^()]*)\)")
_CONSTANT_DECLARATION = re.compile(
    r"\b(?:override|const)\s+(\w+)\s*(?::\s*\w+\s*)?=\s*(\d+)[ui]?\s*;"
)
_ALIAS_DECLARATION = re.compile(r"\balias\s+(\w+)\s*=\s*([^;]+);")
_WORKGROUP_VARIABLE = re.compile(r"var<workgroup>\s*\w+\s*:\s*([^;]+);")
_COMMENT = re.compile(r"//[^\n]*")
_SCALAR_NBYTES = {"f16": 2, "f32": 4, "i32": 4, "u32": 4, "bool": 4}


def workgroup_size(pipeline: RecordedPipeline) -> tuple[int, int, int] | None:
    """Return the workgroup size of `main`; None if the source does not tell it."""
    source, constants = _parse_constants(pipeline)
    match = _WORKGROUP_SIZE.search(source)
    if match is None:
        return None
    size = [
        _evaluate_count(part, constants) for part in match[1].split(",") if part.strip()
    ]
    if None in size or not 1 <= len(size) <= 3:
        return None
    x, y, z = [*(extent or 0 for extent in size), 1, 1][:3]
    return x, y, z


def workgroup_storage_nbytes(pipeline: RecordedPipeline) -> int | None:
    """Return the workgroup memory as WebGPU counts it; None if the source does not tell
    it.
    """
    source, constants = _parse_constants(pipeline)
    aliases = dict(_ALIAS_DECLARATION.findall(source))
    total = 0
    for kind in _WORKGROUP_VARIABLE.findall(source):
        size = _type_size(kind.strip(), constants, aliases)
        if size is None:
            return None
        total += -(-size[0] // 16) * 16
    return total


def _parse_constants(pipeline: RecordedPipeline) -> tuple[str, dict[str, int]]:
    """Return the source without comments, and its integer constants by name."""
    source = _COMMENT.sub("", pipeline.source)
    constants = {
        name: int(value) for name, value in _CONSTANT_DECLARATION.findall(source)
    }
    constants.update((name, int(value)) for name, value in pipeline.constants.items())
    return source, constants


def _evaluate_count(text: str, constants: Mapping[str, int]) -> int | None:
    """Return the value of a number or a known constant; None for anything else."""
    text = text.strip()
    number = re.fullmatch(r"(\d+)[ui]?", text)
    return int(number[1]) if number else constants.get(text)


def _type_size(
    kind: str, constants: Mapping[str, int], aliases: Mapping[str, str]
) -> tuple[int, int] | None:
    """Return (bytes, alignment) of a type; None if it cannot be parsed."""
    if kind in _SCALAR_NBYTES:
        return _SCALAR_NBYTES[kind], _SCALAR_NBYTES[kind]
    if kind in aliases:
        return _type_size(aliases[kind].strip(), constants, aliases)
    match = re.fullmatch(r"(array|vec[234]|atomic)<(.+)>", kind)
    if match is None:
        return None
    name, parameters = match.groups()
    array_parts = (
        parameters.rpartition(",") if name == "array" else ("", "", parameters)
    )
    element = _type_size((array_parts[0] or array_parts[2]).strip(), constants, aliases)
    if element is None or name == "atomic":
        return element
    size, align = element
    if name == "array":
        count = _evaluate_count(array_parts[2], constants) if array_parts[0] else None
        stride = -(-size // align) * align
        return None if count is None else (stride * count, align)
    n = int(name[3])
    return size * n, size * (2 if n == 2 else 4)
