"""The sums of a tile that one invocation keeps in registers, as text.

Registers have no index: what is done to each row of sums would stand in a text as often
as there are rows. Drivers that run on a CPU make a loop over its lanes of every load
and store, and take seconds for hundreds of them. So a tall tile's rows are gone through
in a loop that does the work on the first row and then moves the others up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FEW = 8
"""Sums that are written out: a GPU's registers move for nothing, but not a loop's."""

Body = Callable[[int, str], list[str]]
"""(row of the sums, its number in the tile as WGSL) → lines"""


@dataclass(frozen=True, slots=True)
class SumTile:
    """`rows` times `fours` sums of type V, by letter, row and four: s0_0, s0_1 …"""

    rows: int
    fours: int
    letter: str = "s"

    @property
    def every(self) -> list[tuple[int, int]]:
        return [(r, q) for r in range(self.rows) for q in range(self.fours)]

    @property
    def is_written_out(self) -> bool:
        return self.rows * self.fours <= FEW

    def name(self, row: int, four: int) -> str:
        return f"{self.letter}{row}_{four}"

    def zeros(self) -> list[str]:
        """Their declarations."""
        return [f"var {self.name(*at)} = V();" for at in self.every]

    def stored(self, count: str, body: Body) -> list[str]:
        """Each row out of its sums, once they are done: `body` reads them.

        count   the rows of the tile that the output has, as WGSL. Of a tile that is
                written out all are stored, those beyond where `body` puts them
        """
        if self.is_written_out:
            return [line for r in range(self.rows) for line in body(r, f"{r}u")]
        return self._in_turn(f"var r = 0u; r < {count}; r++", body(0, "r"), up=True)

    def loaded(self, count: str, body: Body) -> list[str]:
        """Each row into its sums: `body` sets them. Beyond `count` they stay zeros, or
        are what `body` finds there.
        """
        if self.is_written_out:
            return self.stored(count, body)
        back = f"var r = {count} - 1u; r < {count}; r--"
        return self._in_turn(back, body(0, "r"), up=False)

    def _in_turn(self, turns: str, body: list[str], up: bool) -> list[str]:
        moves = []
        for r in range(self.rows - 1) if up else reversed(range(self.rows - 1)):
            to, of = (r, r + 1) if up else (r + 1, r)
            pairs = (
                f"{self.name(to, q)} = {self.name(of, q)};" for q in range(self.fours)
            )
            moves.append(" ".join(pairs))
        inside = [*body, *moves] if up else [*moves, *body]
        return [f"for ({turns}) {{", *(f"  {line}" for line in inside), "}"]
