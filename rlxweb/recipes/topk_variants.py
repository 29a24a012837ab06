"""Another shape of topk, for GPUs: a whole workgroup for every row, or chunk of a row.

A long row is cut into chunks whose ranked lists are ranked again until one is left.
Deleting it changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.ir.lowering import Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types
from rlxweb.ir.shape import numel
from rlxweb.limits import Limits
from rlxweb.recipes.reduce_calls import scalar_of

# shaders/topk_group.wgsl has room for so many invocations and candidates.
MOST, ROOM = 256, 1024
SHARED_BYTES = 8 * (MOST + ROOM) + 12
LEAST = 32
"""Invocations of the smallest workgroup, and the shortest row that is worth one."""
MOST_K = 128
"""Above, a list is too long beside the chunk it is of."""
EACH = 16
"""Elements of a chunk for each of its invocations."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """Ranks chunks of rows of `line` candidates.

    places  where the candidates' indices are; None when they are positions
    into    indices and keys
    """

    rows: int
    line: int
    k: int
    kind: str
    source: Ref
    places: Ref | None
    into: tuple[Ref, Ref]

    @property
    def lanes(self) -> int:
        """Each lane's best is a candidate, so there are k lanes or more."""
        wanted = max(LEAST, self.k, min(MOST, self.line // 2))
        return 1 << (wanted - 1).bit_length()

    @property
    def chunk(self) -> int:
        return self.lanes * min(EACH, ROOM // self.k)

    @property
    def chunks(self) -> int:
        return -(-self.line // self.chunk)

    def call(self) -> Call:
        chunks, n = self.chunks, min(self.chunk, self.line)
        walk, kept = (self.line, n, 1), (chunks * self.k, self.k, 0)
        indices, keys = self.into
        accesses = [
            Access(self.source, walk),
            Access(indices, kept, "write", span=self.k),
            Access(keys, kept, "write", span=self.k),
        ]
        if self.places is not None:
            accesses.append(Access(self.places, walk))
        each = -(-n // self.lanes)
        most = self.k * each
        turns = 2 * each + self.lanes + -(-most // self.lanes) * most
        return Call(
            shader="topk_group",
            axes=(Axis("row", self.rows), Axis("chunk", chunks), Axis("n", n, "whole")),
            accesses=tuple(accesses),
            grid=(("row", 1), ("chunk", 1)),
            per="workgroup",
            workgroup=self.lanes,
            values={
                "k": self.k,
                "x_row": self.line,
                "y_row": kept[0],
                "line": self.line,
                "last": int(chunks == 1),
            },
            uses=(
                f"rank_{self.kind}",
                "topk_places" if self.places is None else "topk_lists",
            ),
            shared_bytes=SHARED_BYTES,
            turns=turns / n,
        )


def topk_group(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """Chunks of rows, then lists of chunks, until each row has one list.

    None for rows and workgroups too short to share, and for more than MOST_K places.
    """
    x, k = inputs[0], attrs["k"]
    rows, n = numel(x.shape[:-1]), x.shape[-1]
    memory = limits.max_compute_workgroup_storage_size
    if limits.workgroup_lanes < MOST or memory < SHARED_BYTES:
        return None
    if n < LEAST or k > MOST_K:
        return None
    scratch: list[Scratch] = []

    def fresh(numel: int, kind: Any) -> Ref:
        scratch.append(Scratch(numel, kind))
        return Ref("scratch", len(scratch) - 1)

    out_ref = Ref("out")
    walk = _Walk(rows, n, k, scalar_of(x.dtype), Ref("in"), None, (out_ref, out_ref))
    calls = []
    while True:
        last, lists = walk.chunks == 1, rows * walk.chunks * k
        into = (out_ref if last else fresh(lists, "i32"), fresh(lists, "u32"))
        calls.append(replace(walk, into=into).call())
        if last:
            return Recipe(tuple(calls), tuple(scratch))
        indices, keys = into
        walk = _Walk(rows, walk.chunks * k, k, "u32", keys, indices, into)
