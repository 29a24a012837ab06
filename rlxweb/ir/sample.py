"""Samples: the cases an op must compute correctly on every engine, with their random
input arrays.

Pure data plus one seeded generator. Read by the tests, by `rlxweb smoke` and by the
browser page, so it lives here and not in tests/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.ir.dtype import DType, as_dtype, cast_array
from rlxweb.ir.shape_arithmetic import Shape


@dataclass(frozen=True, slots=True)
class Drawn:
    """One random input of a sample: uniform over [low, high]; whole numbers when
    `whole`.

    diagonal   what is added on the diagonals of its matrices
    """

    shape: Shape
    dtype: DType = DType.F32
    low: float = -2.0
    high: float = 2.0
    whole: bool = False
    diagonal: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_dtype(self.dtype))

    def draw(self, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Draw the array from a random generator."""
        if self.dtype is DType.BOOL:
            return rng.random(self.shape) < 0.5
        if self.dtype.is_integer:
            low = max(self.low, self.dtype.min_value)
            high = min(self.high, self.dtype.max_value)
            drawn = rng.integers(int(low), int(high) + 1, self.shape)
            return np.asarray(drawn).astype(self.dtype.numpy)
        values = rng.uniform(self.low, self.high, self.shape)
        values = np.round(values) if self.whole else values
        if self.diagonal:
            values += self.diagonal * np.eye(self.shape[-2], self.shape[-1])
        return cast_array(np.asarray(values), self.dtype)


@dataclass(frozen=True, slots=True)
class Sample:
    """One case of an op: its inputs and attributes."""

    inputs: tuple[Drawn, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def draw(self, seed: int = 0) -> list[npt.NDArray[Any]]:
        """Draw the input arrays, the same for the same seed."""
        rng = np.random.default_rng(seed)
        return [operand.draw(rng) for operand in self.inputs]


def parse_shape_table(text: str) -> tuple[tuple[Shape, ...], ...]:
    """Parse a table of shapes and axes, a tuple for each row: `x` joins numbers, `@`
    separates columns.

    >>> parse_shape_table("4x7@-2 65537x2@() ()@0")
    (((4, 7), (-2,)), ((65537, 2), ()), ((), (0,)))
    """

    def parse_shape(column: str) -> Shape:
        return tuple(int(n) for n in column.split("x")) if column != "()" else ()

    return tuple(tuple(map(parse_shape, row.split("@"))) for row in text.split())
