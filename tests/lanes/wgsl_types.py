"""Types of a WGSL module as NumPy represents them: vectors are tuples, structs are
dicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.lanes.wgsl_parser import ParsedModule

SCALAR_DTYPES: dict[Any, Any] = {
    "f32": np.float32,
    "u32": np.uint32,
    "i32": np.int32,
    "bool": np.bool_,
}


@dataclass(frozen=True, slots=True)
class WgslTypes:
    """Types of a module and their NumPy values; `counts` are its named constants."""

    module: ParsedModule
    named_constants: Mapping[str, Any]

    def resolve_alias(self, kind: Any) -> Any:
        while isinstance(kind, str) and kind in self.module.aliases:
            kind = self.module.aliases[kind]
        return kind

    def is_scalar(self, kind: Any) -> bool:
        return not (isinstance(kind, tuple) and kind[0] == "array")

    def allocate(self, kind: Any) -> Any:
        if self.is_scalar(kind):
            return self.zero_cells(kind, 1)
        size = kind[2]
        count = int(self.named_constants[size]) if isinstance(size, str) else size
        return self.zero_cells(kind[1], count)

    def zero_cells(self, kind: Any, count: int) -> Any:
        kind = self.resolve_alias(kind)
        if isinstance(kind, tuple) and kind[0] == "atomic":
            return self.zero_cells(kind[1], count)
        if isinstance(kind, tuple):
            return np.zeros(
                (count, int(kind[0][-1])), SCALAR_DTYPES[self.resolve_alias(kind[1])]
            )
        return np.zeros(count, SCALAR_DTYPES[kind])

    def zero_value(self, kind: Any) -> Any:
        members = self.module.structs.get(kind) if isinstance(kind, str) else None
        if members is not None:
            return {
                name: self.zero_value(member_type)
                for name, member_type in members.items()
            }
        cell = self.zero_cells(kind, 1)[0]
        return tuple(cell) if np.ndim(cell) else cell

    def convert(self, kind: Any, value: Any) -> Any:
        kind = self.resolve_alias(kind)
        if kind in SCALAR_DTYPES and not isinstance(value, tuple):
            return np.asarray(value, SCALAR_DTYPES[kind])
        return value

    def bitcast(self, kind: Any, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(
                self.bitcast(self.resolve_alias(kind[1]), component)
                for component in value
            )
        return np.asarray(value).view(SCALAR_DTYPES[kind])

    def make_vector(self, size: int, kind: Any, arguments: Sequence[Any]) -> Any:
        parts: list[Any] = []
        for argument in arguments or [0]:
            parts += argument if isinstance(argument, tuple) else [argument]
        if len(parts) == 1:
            parts *= size
        return tuple(np.asarray(p).astype(SCALAR_DTYPES[kind]) for p in parts)
