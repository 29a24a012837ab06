"""What a plan needs of a device at least, in WebGPU's words.

A page asks its adapter for no more than this, so that a plan made under generous limits
still runs wherever it fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from rlxweb.gpu.browser_words import their_limit
from rlxweb.gpu.port import Command, Dispatch, Range
from rlxweb.gpu.recording import RecordedPipeline
from rlxweb.gpu.rules import BufferFacts
from rlxweb.limits import Limits

_STORAGE, _UNIFORM = "storage", "uniform"


def least_limits(
    buffers: Iterable[BufferFacts],
    pipelines: Mapping[int, RecordedPipeline],
    commands: Sequence[Command],
    made_under: Limits,
) -> dict[str, int]:
    """The least limits by WebGPU's names; of the `min…` ones a device has at most that.

    made_under   the limits of the plan: what a shader's text does not tell is no more
    """
    bound = list(_bound(pipelines, commands))
    storage = [span for kind, span in bound if kind == _STORAGE]
    uniform = [span for kind, span in bound if kind == _UNIFORM]
    grids = [c.grid for c in commands if isinstance(c, Dispatch)]
    layouts = [p.layout for p in pipelines.values()]
    sizes = [workgroup(p) or _largest(made_under) for p in pipelines.values()]
    most = made_under.max_compute_workgroup_storage_size
    shared = (shared_bytes(p) for p in pipelines.values())
    needs = {
        "max_buffer_size": [one.nbytes for one in buffers],
        "max_storage_buffer_binding_size": [span.nbytes for span in storage],
        "max_uniform_buffer_binding_size": [span.nbytes for span in uniform],
        "max_storage_buffers_per_shader_stage": [
            len(order) - order.count("uniform") for order in layouts
        ],
        "max_compute_workgroups_per_dimension": [max(grid) for grid in grids],
        "max_compute_invocations_per_workgroup": [prod(size) for size in sizes],
        "max_compute_workgroup_size_x": [size[0] for size in sizes],
        "max_compute_workgroup_size_y": [size[1] for size in sizes],
        "max_compute_workgroup_size_z": [size[2] for size in sizes],
        "max_compute_workgroup_storage_size": [
            most if one is None else one for one in shared
        ],
    }
    found = {their_limit(name): max(of, default=0) for name, of in needs.items()}
    for name, spans in (("storage", storage), ("uniform", uniform)):
        own = their_limit(f"min_{name}_buffer_offset_alignment")
        found[own] = _alignment(span.offset for span in spans)
    return found


def _bound(
    pipelines: Mapping[int, RecordedPipeline], commands: Sequence[Command]
) -> Iterator[tuple[str, Range]]:
    for one in commands:
        if isinstance(one, Dispatch):
            order = pipelines[one.pipeline].layout
            for span, access in zip(one.bindings, order, strict=True):
                yield (_UNIFORM if access == "uniform" else _STORAGE), span


def _alignment(offsets: Iterable[int]) -> int:
    """The largest power of two that all are multiples of, at most WebGPU's default."""
    every = 256
    for offset in offsets:
        every |= offset
    return every & -every


def _largest(limits: Limits) -> tuple[int, int, int]:
    return limits.max_compute_workgroup_size_x, 1, 1


# --- what a shader's text tells ---------------------------------------------------

_SIZE = re.compile(r"@workgroup_size\(([^()]*)\)")
_NUMBER = re.compile(
    r"\b(?:override|const)\s+(\w+)\s*(?::\s*\w+\s*)?=\s*(\d+)[ui]?\s*;"
)
_ALIAS = re.compile(r"\balias\s+(\w+)\s*=\s*([^;]+);")
_ROOM = re.compile(r"var<workgroup>\s*\w+\s*:\s*([^;]+);")
_COMMENT = re.compile(r"//[^\n]*")
_BYTES = {"f16": 2, "f32": 4, "i32": 4, "u32": 4, "bool": 4}


def workgroup(pipeline: RecordedPipeline) -> tuple[int, int, int] | None:
    """The workgroup of `main`; None where its text does not tell."""
    source, known = _read(pipeline)
    found = _SIZE.search(source)
    if found is None:
        return None
    size = [_count(part, known) for part in found[1].split(",") if part.strip()]
    if None in size or not 1 <= len(size) <= 3:
        return None
    x, y, z = [*(one or 0 for one in size), 1, 1][:3]
    return x, y, z


def shared_bytes(pipeline: RecordedPipeline) -> int | None:
    """Workgroup memory as WebGPU counts it; None where the text does not tell."""
    source, known = _read(pipeline)
    aliases = dict(_ALIAS.findall(source))
    total = 0
    for kind in _ROOM.findall(source):
        size = _size(kind.strip(), known, aliases)
        if size is None:
            return None
        total += -(-size[0] // 16) * 16
    return total


def _read(pipeline: RecordedPipeline) -> tuple[str, dict[str, int]]:
    source = _COMMENT.sub("", pipeline.source)
    known = {name: int(value) for name, value in _NUMBER.findall(source)}
    known.update((name, int(value)) for name, value in pipeline.constants.items())
    return source, known


def _count(text: str, known: Mapping[str, int]) -> int | None:
    text = text.strip()
    number = re.fullmatch(r"(\d+)[ui]?", text)
    return int(number[1]) if number else known.get(text)


def _size(
    kind: str, known: Mapping[str, int], aliases: Mapping[str, str]
) -> tuple[int, int] | None:
    """(bytes, alignment) of a type; None for one this does not read."""
    if kind in _BYTES:
        return _BYTES[kind], _BYTES[kind]
    if kind in aliases:
        return _size(aliases[kind].strip(), known, aliases)
    made = re.fullmatch(r"(array|vec[234]|atomic)<(.+)>", kind)
    if made is None:
        return None
    name, inside = made.groups()
    counted = inside.rpartition(",") if name == "array" else ("", "", inside)
    element = _size((counted[0] or counted[2]).strip(), known, aliases)
    if element is None or name == "atomic":
        return element
    size, align = element
    if name == "array":
        count = _count(counted[2], known) if counted[0] else None
        stride = -(-size // align) * align
        return None if count is None else (stride * count, align)
    n = int(name[3])
    return size * n, size * (2 if n == 2 else 4)
