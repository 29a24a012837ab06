"""Types of a WGSL module as NumPy has them: vectors are tuples, structs are dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.lanes.parse import Module

SCALARS: dict[Any, Any] = {
    "f32": np.float32,
    "u32": np.uint32,
    "i32": np.int32,
    "bool": np.bool_,
}


@dataclass(frozen=True, slots=True)
class Types:
    """What the types of a module stand for; `counts` are its named constants."""

    module: Module
    counts: Mapping[str, Any]

    def plain(self, kind: Any) -> Any:
        while isinstance(kind, str) and kind in self.module.aliases:
            kind = self.module.aliases[kind]
        return kind

    def is_scalar(self, kind: Any) -> bool:
        return not (isinstance(kind, tuple) and kind[0] == "array")

    def room(self, kind: Any) -> Any:
        if self.is_scalar(kind):
            return self.cells(kind, 1)
        size = kind[2]
        count = int(self.counts[size]) if isinstance(size, str) else size
        return self.cells(kind[1], count)

    def cells(self, kind: Any, count: int) -> Any:
        kind = self.plain(kind)
        if isinstance(kind, tuple) and kind[0] == "atomic":
            return self.cells(kind[1], count)
        if isinstance(kind, tuple):
            return np.zeros((count, int(kind[0][-1])), SCALARS[self.plain(kind[1])])
        return np.zeros(count, SCALARS[kind])

    def zero(self, kind: Any) -> Any:
        members = self.module.structs.get(kind) if isinstance(kind, str) else None
        if members is not None:
            return {name: self.zero(one) for name, one in members.items()}
        room = self.cells(kind, 1)[0]
        return tuple(room) if np.ndim(room) else room

    def typed(self, kind: Any, value: Any) -> Any:
        kind = self.plain(kind)
        if kind in SCALARS and not isinstance(value, tuple):
            return np.asarray(value, SCALARS[kind])
        return value

    def bits(self, kind: Any, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.bits(self.plain(kind[1]), one) for one in value)
        return np.asarray(value).view(SCALARS[kind])

    def vector(self, size: int, kind: Any, given: Sequence[Any]) -> Any:
        parts: list[Any] = []
        for one in given or [0]:
            parts += one if isinstance(one, tuple) else [one]
        if len(parts) == 1:
            parts *= size
        return tuple(np.asarray(p).astype(SCALARS[kind]) for p in parts)
