"""Dim: a dimension of a graph's inputs whose size a run binds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from rlxweb.errors import GraphError, ShapeError, shown
from rlxweb.ir.shape import as_integer, many
from rlxweb.ir.size import Bounds, Size, Where

Declared: TypeAlias = Sequence[int | Size | str | None] | int | Size | str
"""A shape of which some sizes vary."""
_FIRST = (5, 7, 11, 13, 17, 19, 23)
_SECOND = (29, 31, 37, 41, 43, 47, 53, 59)
_THIRD = (61, 67, 71, 73, 79, 83, 89, 97, 101)
_TRIED = (_FIRST, _SECOND, _THIRD)
"""Sizes that a dim is tried with while its graph is built: dims of other names mostly
get others, and products of them are told apart."""


class Dim(Size):
    """A dimension whose size a run binds: `g.input("x", (Dim("batch"), 64))`.

    The same name is the same size everywhere in a graph.

    name         what messages and `bind` call it
    min, max     sizes that it may be, both included; no max: any
    multiple_of  it divides every size that it may be

    Errors   GraphError for what is no name, and where no size is left.
    """

    __slots__ = ("_samples", "max", "min", "multiple_of", "name")

    def __init__(
        self, name: str, min: int = 1, max: int | None = None, multiple_of: int = 1
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise GraphError("Dim", f"its name is {shown(name)}", "a text is wanted")
        self.name = name
        self.min = as_integer(min, f"min of dim {shown(name)}")
        self.max = None if max is None else as_integer(max, f"max of dim {shown(name)}")
        self.multiple_of = as_integer(multiple_of, f"multiple_of of dim {shown(name)}")
        if self.min < 0 or self.multiple_of < 1 or not self._least <= self._most:
            raise GraphError(
                f"Dim {shown(name)}",
                "no size is left for it",
                f"min {self.min}, max {self.max}, multiple of {self.multiple_of}",
            )
        self._samples = tuple(self._sample(rows) for rows in _TRIED)
        super().__init__({(name,): ((self,), 1)})

    @property
    def _least(self) -> int:
        return -(-self.min // self.multiple_of) * self.multiple_of

    @property
    def _most(self) -> float:
        return float("inf") if self.max is None else self.max

    def _sample(self, rows: tuple[int, ...]) -> int:
        step, least = self.multiple_of, self._least
        of = rows[crc32(self.name.encode()) % len(rows)]
        if self.min <= 1 and step * of <= self._most:
            return step * of
        if self.max is not None:
            return least + step * (of % ((self.max - least) // step + 1))
        return least + step * of

    @property
    def samples(self) -> tuple[int, ...]:
        return self._samples

    @property
    def bounds(self) -> Bounds:
        return self._least, self._most

    @property
    def key(self) -> str:
        return self.name

    @property
    def text(self) -> str:
        return self.name

    @property
    def ends(self) -> tuple[int, int | None, int]:
        """min, max and multiple_of."""
        return self.min, self.max, self.multiple_of

    def at(self, where: Where) -> int | Size:
        return where.of_dim(self)

    def __repr__(self) -> str:
        more = [f", min={self.min}"] * (self.min != 1)
        more += [f", max={self.max}"] * (self.max is not None)
        more += [f", multiple_of={self.multiple_of}"] * (self.multiple_of != 1)
        return f"Dim({self.name!r}{''.join(more)})"

    def __reduce__(self) -> Any:
        return Dim, (self.name, *self.ends)

    def check(self, value: Any, doing: str) -> int:
        """A size that it may be. Errors  ShapeError with both numbers."""
        size = as_integer(value, f"dim {shown(self.name)}")
        if self.min <= size <= self._most and size % self.multiple_of == 0:
            return size
        rule = f"at least {self.min}" if size < self.min else f"at most {self.max}"
        if self.min <= size <= self._most:
            rule = f"a multiple of {self.multiple_of}"
        raise ShapeError(
            doing,
            f"dim {shown(self.name)} is {size:,}",
            f"it is {rule}",
            f"Dim({self.name!r}, …) of the graph's inputs says what it may be",
        )


def dims_of(shape: object, name: object) -> list[Any] | None:
    """A declared shape with a Dim for each name, None and -1; None where all are ints.

    A dim without a name has the input's and its place: "x_0".
    """
    every = (shape,) if isinstance(shape, Size) else many(shape)
    free = (Size, str, type(None))
    if every is None or not any(isinstance(d, free) or _is_free(d) for d in every):
        return None
    made: list[Any] = []
    for at, one in enumerate(every):
        if isinstance(one, str):
            one = Dim(one)
        elif one is None or _is_free(one):
            one = Dim(f"{shown(str(name))[1:-1]}_{at}")
        made.append(one)
    return made


def _is_free(one: object) -> bool:
    return isinstance(one, int | np.integer) and one == -1
