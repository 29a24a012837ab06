"""Symbolic input dimensions whose sizes are bound at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from rlxweb.core.errors import GraphError, ShapeError, shown
from rlxweb.ir.shape_arithmetic import as_integer, as_tuple
from rlxweb.ir.sym_int import SizeBounds, SizeEnvironment, SymInt

DeclaredShape: TypeAlias = Sequence[int | SymInt | str | None] | int | SymInt | str
"""A shape of which some sizes may vary."""
_FIRST_PRIMES = (5, 7, 11, 13, 17, 19, 23)
_SECOND_PRIMES = (29, 31, 37, 41, 43, 47, 53, 59)
_THIRD_PRIMES = (61, 67, 71, 73, 79, 83, 89, 97, 101)
_SAMPLE_PRIMES = (_FIRST_PRIMES, _SECOND_PRIMES, _THIRD_PRIMES)
"""Sample sizes used for a dim while its graph is built. Dims of different names mostly
get different primes, so that their products can be told apart.
"""


class Dim(SymInt):
    """A dimension whose size is bound at run time: `g.input("x", (Dim("batch"), 64))`.

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
            raise GraphError(
                "Dim", f"the name is {shown(name)}", "expected a non-empty string"
            )
        self.name = name
        self.min = as_integer(min, f"min of dim {shown(name)}")
        self.max = None if max is None else as_integer(max, f"max of dim {shown(name)}")
        self.multiple_of = as_integer(multiple_of, f"multiple_of of dim {shown(name)}")
        if (
            self.min < 0
            or self.multiple_of < 1
            or not self._smallest_size <= self._largest_size
        ):
            raise GraphError(
                f"Dim {shown(name)}",
                f"min={self.min}, max={self.max}, multiple_of={self.multiple_of}",
                "min must be >= 0, multiple_of must be >= 1, and at least one size "
                "must satisfy all bounds",
            )
        self._samples = tuple(self._sample(primes) for primes in _SAMPLE_PRIMES)
        super().__init__({(name,): ((self,), 1)})

    @property
    def _smallest_size(self) -> int:
        return -(-self.min // self.multiple_of) * self.multiple_of

    @property
    def _largest_size(self) -> float:
        return float("inf") if self.max is None else self.max

    def _sample(self, primes: tuple[int, ...]) -> int:
        step, smallest = self.multiple_of, self._smallest_size
        prime = primes[crc32(self.name.encode()) % len(primes)]
        if self.min <= 1 and step * prime <= self._largest_size:
            return step * prime
        if self.max is not None:
            return smallest + step * (prime % ((self.max - smallest) // step + 1))
        return smallest + step * prime

    @property
    def samples(self) -> tuple[int, ...]:
        return self._samples

    @property
    def bounds(self) -> SizeBounds:
        return self._smallest_size, self._largest_size

    @property
    def key(self) -> str:
        return self.name

    @property
    def text(self) -> str:
        return self.name

    @property
    def ends(self) -> tuple[int, int | None, int]:
        """The tuple (min, max, multiple_of)."""
        return self.min, self.max, self.multiple_of

    def at(self, where: SizeEnvironment) -> int | SymInt:
        return where.dim_size(self)

    def __repr__(self) -> str:
        options = [f", min={self.min}"] * (self.min != 1)
        options += [f", max={self.max}"] * (self.max is not None)
        options += [f", multiple_of={self.multiple_of}"] * (self.multiple_of != 1)
        return f"Dim({self.name!r}{''.join(options)})"

    def __reduce__(self) -> Any:
        return Dim, (self.name, *self.ends)

    def check(self, value: Any, doing: str) -> int:
        """Return `value` as a size that this dim allows. Errors  ShapeError with both
        numbers.
        """
        size = as_integer(value, f"dim {shown(self.name)}")
        if self.min <= size <= self._largest_size and size % self.multiple_of == 0:
            return size
        rule = f"at least {self.min}" if size < self.min else f"at most {self.max}"
        if self.min <= size <= self._largest_size:
            rule = f"a multiple of {self.multiple_of}"
        raise ShapeError(
            doing,
            f"dim {shown(self.name)} is {size:,}",
            f"it must be {rule}",
            f"change the bounds in Dim({self.name!r}, …) of the graph's inputs",
        )


def symbolic_shape(shape: object, name: object) -> list[Any] | None:
    """Return a declared shape with names, None and -1 replaced by a Dim; None if all
    sizes are ints.

    A dim without a name has the input's and its place: "x_0".
    """
    sizes = (shape,) if isinstance(shape, SymInt) else as_tuple(shape)
    symbolic_types = (SymInt, str, type(None))
    if sizes is None or not any(
        isinstance(d, symbolic_types) or _is_unnamed_dim(d) for d in sizes
    ):
        return None
    dims: list[Any] = []
    for axis, size in enumerate(sizes):
        if isinstance(size, str):
            size = Dim(size)
        elif size is None or _is_unnamed_dim(size):
            size = Dim(f"{shown(str(name))[1:-1]}_{axis}")
        dims.append(size)
    return dims


def _is_unnamed_dim(size: object) -> bool:
    return isinstance(size, int | np.integer) and size == -1
