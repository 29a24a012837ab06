"""Elements picked out of a tensor, or put into it, by indices of one or several axes.

The tensor is seen as (outer, rows, inner), the rows being those that indices name. A
piece holds some of the rows and does what concerns them. Values are put in one after
the other along a line, in the order of their indices: the last one wins, and a sum has
the same bits every time. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import row_major
from rlxweb.ir.lowering import ALL, Access, Axis, Call, Recipe, Ref
from rlxweb.recipes.entry import MAIN_LINES
from rlxweb.recipes.reduce_calls import type_include

_X, _AT, _OUT = Ref("in"), Ref("in", 1), Ref("out")
COMBINED = {
    "none": "v",
    "add": "ld2(place) + v",
    "mul": "ld2(place) * v",
    "max": "larger_of(ld2(place), v)",
    "min": "smaller_of(ld2(place), v)",
}


@dataclass(frozen=True, slots=True)
class Picks:
    """How indices name the rows of a tensor.

    outer   times that all of it is there, each with indices of its own
    dims    the axes that an index names, whose product is the rows
    inner   elements of a row
    count   indices of each outer part
    apart   each element of a row has indices of its own (along one axis)
    index   their type
    """

    outer: int
    dims: tuple[int, ...]
    inner: int
    count: int
    apart: bool
    index: DType

    @property
    def rows(self) -> int:
        return math.prod(self.dims)

    @property
    def indices(self) -> dict[str, int]:
        """Strides of the indices over (outer, index, inner)."""
        each = self.inner if self.apart else len(self.dims)
        return {
            "i_outer": self.count * each,
            "i_index": each,
            "i_inner": int(self.apart),
        }

    @property
    def values(self) -> dict[str, int]:
        """Sizes and strides of the axes that an index names."""
        steps = row_major(self.dims)
        sizes = {f"n{k}": size for k, size in enumerate(self.dims)}
        return sizes | {f"r{k}": step for k, step in enumerate(steps)} | self.indices

    def found(self, wrong: Sequence[str]) -> list[str]:
        """The row that the index at `at` names; those outside do as is said."""
        lines, count = [], len(self.dims)
        for k in range(count):
            lines.append(f"  let c{k} = ld1(at + {k}u);")
            behind = f" + select(0u, u.n{k}, c{k} < 0)"
            behind = "" if self.index.is_unsigned else behind
            lines.append(f"  let w{k} = u32(c{k}){behind};")
        outside = " || ".join(f"w{k} >= u.n{k}" for k in range(count))
        row = " + ".join(f"w{k} * u.r{k}" for k in range(count))
        return [
            *lines,
            f"  if ({outside}) {{",
            "    if (u.at_t == 0u) { fault(1u); }",
            *wrong,
            "  }",
            f"  let row = {row} - u.at_t;",
        ]

    def gather(self) -> Recipe:
        """The rows that the indices name, in their order."""
        i = self.indices
        lines = [
            *MAIN_LINES,
            "  let inner = item % u.inner;",
            "  let index = (item / u.inner) % u.index;",
            "  let outer = item / u.inner / u.index;",
            "  let at = outer * u.i_outer + index * u.i_index + inner * u.i_inner;",
            "  let line = outer * u.x_outer + inner;",
            "  let place = outer * u.y_outer + index * u.y_index + inner;",
            *self.found(
                (
                    "    if (u.at_t == 0u) { st2(place, ld0(line)); }",
                    "    return;",
                )
            ),
            "  if (row < u.t) { st2(place, ld0(line + row * u.y_index)); }",
            "}",
        ]
        call = Call(
            shader="gather of elements",
            axes=(
                Axis("outer", self.outer),
                Axis("index", self.count),
                Axis("inner", self.inner),
                Axis("t", self.rows, "serial"),
            ),
            accesses=(
                Access(_X, (self.rows * self.inner, 0, 1, self.inner)),
                Access(_AT, (*i.values(), 0), span=len(self.dims)),
                Access(_OUT, (self.count * self.inner, self.inner, 1, 0), "update"),
            ),
            grid=(("outer", 1), ("index", 1), ("inner", 1)),
            values=self.values
            | {
                "x_outer": self.rows * self.inner,
                "y_outer": self.count * self.inner,
                "y_index": self.inner,
            },
            source="\n".join(lines),
            faults=True,
            turns=0.0,
        )
        return Recipe((call,))

    def scatter(self, reduction: str, dtype: DType) -> Recipe:
        """A copy of the tensor, and the values put into it."""
        total = self.outer * self.rows * self.inner
        if not self.outer * self.count * self.inner:
            return Recipe((_copy(total),))
        i = self.indices
        lines = [
            *MAIN_LINES,
            "  let inner = item % u.inner;",
            "  let outer = item / u.inner;",
            "  for (var j = 0u; j < u.j; j += 1u) {",
            "  let at = outer * u.i_outer + j * u.i_index + inner * u.i_inner;",
            *self.found(("    continue;",)),
            "  if (row >= u.t) { continue; }",
            "  let place = outer * u.y_outer + row * u.v_j + inner;",
            "  let v = ld0(outer * u.v_outer + j * u.v_j + inner);",
            f"  st2(place, {COMBINED[reduction]});",
            "  }",
            "}",
        ]
        plain = reduction == "none"
        call = Call(
            shader="scatter of elements",
            axes=(
                Axis("outer", self.outer),
                Axis("inner", self.inner),
                Axis("t", self.rows, "serial"),
                Axis("j", self.count, "serial"),
            ),
            accesses=(
                Access(Ref("in", 2), (self.count * self.inner, 1, 0, self.inner)),
                Access(
                    _AT,
                    (i["i_outer"], i["i_inner"], 0, i["i_index"]),
                    span=len(self.dims),
                ),
                Access(_OUT, (self.rows * self.inner, 1, self.inner, 0), "update"),
            ),
            grid=(("outer", 1), ("inner", 1), ("t", ALL)),
            values=self.values
            | {
                "y_outer": self.rows * self.inner,
                "v_outer": self.count * self.inner,
                "v_j": self.inner,
            },
            uses=() if plain else (type_include(dtype),),
            source="\n".join(lines),
            faults=True,
            turns=1.0,
        )
        return Recipe((_copy(total), call))


def _copy(count: int) -> Call:
    """The operand as it is, to be changed."""
    return Call(
        shader="copy before a scatter",
        axes=(Axis("n", count),),
        accesses=(Access(_X, (1,)), Access(_OUT, (1,), "write")),
        grid=(("n", 1),),
        source="\n".join([*MAIN_LINES, "  st1(item, ld0(item));", "}"]),
    )
