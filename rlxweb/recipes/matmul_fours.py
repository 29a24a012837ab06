"""Matrix products in fours, for adapters on the CPU: the text of one kernel per tile.

An invocation computes a tile of the output. What such an adapter pays for is a load,
each lane's by itself, be it of one element or of four: so both operands are read as
vec4s, along the sum where they lie that way, and four terms of it are added at a time
to one sum after the other, while it is in a register. The sums leave in a loop that
moves up the next, for one store in a text compiles faster than many.

A larger tile computes faster and compiles slower. On lavapipe, of the time of 16 by 16
by single elements: 8 by 8 0.9 and 16 by 16 0.6, compiled in 110 and 380 ms for 180.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlxweb.ir.lowering import Call, Recipe
from rlxweb.ir.op import TensorType, Types, registry
from rlxweb.limits import Limits
from rlxweb.recipes.fft_variants import RecipeFor
from rlxweb.recipes.lane_cells import LANES, MAIN
from rlxweb.recipes.sum_tile import SumTile

TILES = ((16, 1 << 28), (8, 1))
"""Tiles, and the multiplications of one matrix by one from which a few runs make up for
the time that the text of one takes to compile. However many of them a batch has: more
examples should find the texts that fewer have compiled.
"""
TERMS = tuple(enumerate("xyzw"))


@dataclass(frozen=True, slots=True)
class Fours:
    """One kernel.

    side    rows and columns of its tile, a multiple of four
    turned  which of the operands lie column by column
    """

    side: int
    turned: tuple[bool, bool]

    @property
    def fours(self) -> int:
        return self.side // 4

    @property
    def _sums(self) -> SumTile:
        return SumTile(self.side, self.fours)

    def text(self) -> str:
        """The shader, after its element types."""
        lines = [
            f"  let tile = tile_of(item, {self.side}u, {self.side}u);",
            *self._places("x", "row", "u.m", "u.x_row", self.turned[0]),
            *self._places("y", "column", "u.n", "u.y_n", not self.turned[1]),
            *(f"  {line}" for line in self._sums.zeros()),
            "  for (var k = 0u; k < u.k / 4u; k++) {",
            *(f"    {line}" for line in (*self._right(), *self._left())),
            *(f"    {_summed(r, c)}" for r, c in self._sums.every),
            "  }",
            *(f"  {line}" for line in self._stores()),
            "}",
        ]
        return MAIN + "\n".join(lines)

    def _places(
        self, side: str, corner: str, size: str, step: str, by_fours: bool
    ) -> list[str]:
        """Where the lines of an operand begin, or fours of lines that lie side by side;
        beyond the edge the last ones again.
        """
        each, by = (4, "") if by_fours else (1, f" * {step}")
        return [
            f"  let {side}{at} = (tile.{side} "
            f"+ min(tile.{corner} + {each * at}u, {size} - {each}u){by}) / 4u;"
            for at in range(self.side // each)
        ]

    def _left(self) -> list[str]:
        """a{r}: four terms of row r."""
        if not self.turned[0]:
            return [f"let a{r} = ld0(x{r} + k);" for r in range(self.side)]
        lines = []
        for f in range(self.fours):
            lines += [f"let f{f}_{q} = ld0(x{f} + {_at(q, 'x_k')});" for q, _ in TERMS]
            for r, part in TERMS:
                each = ", ".join(f"f{f}_{q}.{part}" for q, _ in TERMS)
                lines.append(f"let a{4 * f + r} = V({each});")
        return lines

    def _right(self) -> list[str]:
        """b{c}_{q}: term q of the columns of four c."""
        if not self.turned[1]:
            return [
                f"let b{c}_{q} = ld1(y{c} + {_at(q, 'y_row')});"
                for q, _ in TERMS
                for c in range(self.fours)
            ]
        lines = [f"let t{c} = ld1(y{c} + k);" for c in range(self.side)]
        for c in range(self.fours):
            for q, part in TERMS:
                each = ", ".join(f"t{4 * c + j}.{part}" for j, _ in TERMS)
                lines.append(f"let b{c}_{q} = V({each});")
        return lines

    def _stores(self) -> list[str]:
        """Row by row, and in a row the first sum, over and over."""

        def row(_row: int, number: str) -> list[str]:
            return [
                f"let line = tile.z + (tile.row + {number}) * u.z_row;",
                "let z = (line + tile.column) / 4u;",
                "for (var c = 0u; c < fours; c++) {",
                "  st2(z + c, s0_0);",
                *(f"  s0_{c} = s0_{c + 1};" for c in range(self.fours - 1)),
                "}",
            ]

        return [
            f"let rows = min({self.side}u, u.m - tile.row);",
            f"let fours = min({self.fours}u, (u.n - tile.column) / 4u);",
            *self._sums.stored("rows", row),
        ]


def _at(q: int, step: str) -> str:
    """How far term q of four lies from the line's begin, in vec4s."""
    return f"(4u * k + {q}u) * (u.{step} / 4u)"


def _summed(r: int, c: int) -> str:
    """Four terms onto one sum."""
    terms = (f"s{r}_{c} = mul_add(V(a{r}.{p}), b{c}_{q}, s{r}_{c});" for q, p in TERMS)
    return " ".join(terms)


def matmul_fours(side: int, least: int = 1) -> RecipeFor:
    """The recipe of a product by tiles of `side` by `side`, for adapters on the CPU.

    Sums whole axes. None where an operand or the output has lines that are not of whole
    fours, for matrices smaller than a tile or of less than `least` multiplications.
    """

    def recipe(
        inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
    ) -> Recipe | None:
        if min(out.shape[-2:]) < side:
            return None
        made = registry.get("matmul").recipe(inputs, out, attrs)
        if made is None:
            return None
        calls = [_by_fours(side, least, call) for call in made.calls]
        found = tuple(call for call in calls if call is not None)
        return Recipe(found) if len(found) == len(calls) else None

    return recipe


def _by_fours(side: int, least: int, call: Call) -> Call | None:
    """A product's own call by this kernel."""
    size = {axis.name: axis.size for axis in call.axes}
    turned = call.values["x_k"] != 1, call.values["y_n"] != 1
    fours = [size["k"], size["n"], size["m"] if turned[0] else 4]
    starts = [access.offset for access in call.accesses]
    is_odd = any(number % 4 for number in (*fours, *starts))
    if is_odd or size["m"] * size["n"] * size["k"] < least:
        return None
    x, y, z = (replace(access, wide=True) for access in call.accesses)
    tiles = {"m": side, "n": side}
    return replace(
        call,
        shader="matmul_fours",
        source=Fours(side, turned).text(),
        axes=tuple(axis.uncut() for axis in call.axes),
        accesses=(x, y, replace(z, mode="write")),
        grid=tuple((name, tiles.get(name, n)) for name, n in call.grid),
        workgroup=LANES,
        uses=(call.uses[0], "matmul_tile"),
        turns=0.5,
        finishes="stores",
    )
