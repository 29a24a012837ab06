"""WGSL of the tile of accumulators that one invocation keeps in registers.

Registers have no index: what is done to each row of sums would stand in a text as often
as there are rows. Drivers that run on a CPU make a loop over its lanes of every load
and store, and take seconds for hundreds of them. So a tall tile's rows are gone through
in a loop that does the work on the first row and then moves the others up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MAX_UNROLLED = 8
"""Largest number of accumulators whose code is unrolled; the rows of larger tiles go
through a loop.
"""

TileRowBody = Callable[[int, str], list[str]]
"""Function (accumulator row, row number in the tile as WGSL) → lines."""


@dataclass(frozen=True, slots=True)
class AccumulatorTile:
    """Tile of `rows` times `vec4_columns` accumulators of type V, named by prefix, row
    and column: s0_0, s0_1 …
    """

    rows: int
    vec4_columns: int
    prefix: str = "s"

    @property
    def positions(self) -> list[tuple[int, int]]:
        """All (row, column) positions."""
        return [(r, q) for r in range(self.rows) for q in range(self.vec4_columns)]

    @property
    def is_unrolled(self) -> bool:
        """True if the code of every row is written out instead of looped over."""
        return self.rows * self.vec4_columns <= MAX_UNROLLED

    def variable_name(self, row: int, column: int) -> str:
        """Return the variable name of an accumulator."""
        return f"{self.prefix}{row}_{column}"

    def declarations(self) -> list[str]:
        """Return the declarations of all accumulators, set to zero."""
        return [
            f"var {self.variable_name(*position)} = V();" for position in self.positions
        ]

    def store_rows(self, count: str, body: TileRowBody) -> list[str]:
        """Return the code that stores each row of accumulators; `body` reads them.

        count   the rows of the tile that the output has, as WGSL. Of a tile that is
                written out all are stored, those beyond where `body` puts them
        """
        if self.is_unrolled:
            return [line for r in range(self.rows) for line in body(r, f"{r}u")]
        return self._row_loop(
            f"var r = 0u; r < {count}; r++", body(0, "r"), shifts_up=True
        )

    def load_rows(self, count: str, body: TileRowBody) -> list[str]:
        """Return the code that loads each row of accumulators; `body` sets them. Rows
        beyond `count` stay zero, or get the value that `body` reads there.
        """
        if self.is_unrolled:
            return self.store_rows(count, body)
        loop_header = f"var r = {count} - 1u; r < {count}; r--"
        return self._row_loop(loop_header, body(0, "r"), shifts_up=False)

    def _row_loop(
        self, loop_header: str, body: list[str], shifts_up: bool
    ) -> list[str]:
        """Return a loop that works on the first row of accumulators and then shifts the
        others up or down.
        """
        shifts = []
        for r in range(self.rows - 1) if shifts_up else reversed(range(self.rows - 1)):
            target, source = (r, r + 1) if shifts_up else (r + 1, r)
            assignments = (
                f"{self.variable_name(target, q)} = {self.variable_name(source, q)};"
                for q in range(self.vec4_columns)
            )
            shifts.append(" ".join(assignments))
        loop_body = [*body, *shifts] if shifts_up else [*shifts, *body]
        return [f"for ({loop_header}) {{", *(f"  {line}" for line in loop_body), "}"]
