"""Where a lane keeps its rows between passes, and the kernel around one row's work.

Rows of a workgroup lie side by side, lane by lane: drivers that run on a CPU carry the
lanes of a workgroup in one vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rlxweb.ir.lowering import Access
from rlxweb.limits import MAX_TURNS
from rlxweb.recipes.butterfly import Emitter, Pair
from rlxweb.recipes.fft_calls import Work

LANES = 8
"""Rows a workgroup walks side by side: the vector width of the CPU drivers."""
SLOTS = 32 * LANES
"""Rows in flight when rows live in a scratch buffer: bounds the scratch."""
_FOLLOWING = 4
_ARRAYS = ("re", "im", "sum")

MAIN = """@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
"""


@dataclass(frozen=True, slots=True)
class LaneCells:
    """Where the rows of a lane kernel lie between passes, and the kernel around them.

    arrays      of n cells a row: real and imaginary parts, and sums if they are apart
    in_scratch  in the buffer of `access`, where a lane walks several rows one after the
                other; False: in workgroup memory
    width       neighbouring cells an access gets at once, 1 or 4: a divisor of n
    """

    n: int
    in_scratch: bool
    arrays: int
    access: int = 2
    width: int = 1

    @property
    def numel(self) -> int:
        """Elements of the scratch buffer."""
        return self.arrays * self.n * SLOTS

    @property
    def shared_bytes(self) -> int:
        """What they take of workgroup memory."""
        return 0 if self.in_scratch else shared_bytes(self.n, self.arrays)

    def tile(self, rows: int, turns: int) -> int:
        """Rows a lane walks; `turns` are its loop turns for one of them."""
        if not self.in_scratch:
            return 1
        # A few, where there are rows enough for some cores: the second one finds the
        # scratch of the first one in a cache.
        least = min(_FOLLOWING, rows // (8 * LANES))
        most = MAX_TURNS // (turns + 1)
        return max(1, min(max(math.ceil(rows / SLOTS), least), most))

    def most_rows(self, rows: int, turns: int) -> int:
        """Rows of one call: the scratch holds so many lanes. 0 is no bound."""
        return SLOTS * self.tile(rows, turns) if self.in_scratch else 0

    @property
    def _array(self) -> int:
        """Accesses to one array of all lanes."""
        return self.n // self.width * LANES

    def _at(self, array: int, at: str) -> str:
        return f"spot + {array * self._array}u + ({at}) * {LANES}u"

    def get(self, array: int, at: str) -> str:
        """Cell width · at, and those behind it that come with it."""
        if self.in_scratch:
            return f"ld{self.access}({self._at(array, at)})"
        return f"{_ARRAYS[array]}[({at}) * {LANES}u + lid]"

    def put(self, array: int, at: str, value: str) -> str:
        """The counterpart of `get`."""
        if self.in_scratch:
            return f"st{self.access}({self._at(array, at)}, {value});"
        return f"{self.get(array, at)} = {value};"

    def load(self, e: Emitter, base: str, offset: int) -> Pair:
        """Real and imaginary parts at base + offset."""
        cell = f"{base} + {offset}u"
        return e.let(self.get(0, cell)), e.let(self.get(1, cell))

    def store(self, e: Emitter, cell: str, y: Pair) -> None:
        """The counterpart of `load`."""
        e.do(self.put(0, cell, y[0]))
        e.do(self.put(1, cell, y[1]))

    def module(self, body: str) -> str:
        """The whole kernel around what is done to row `row`."""
        if self.in_scratch:
            each = self.arrays * self._array
            return (
                f"{MAIN}  let spot = (item / {LANES}u) * {each}u + item % {LANES}u;\n"
                "  for (var row = item; row < u.rows; row += u.items) {\n"
                f"{body}\n  }}\n}}\n"
            )
        kind = "f32" if self.width == 1 else f"vec{self.width}<f32>"
        room = "".join(
            f"var<workgroup> {name}: array<{kind}, {self._array}>;\n"
            for name in _ARRAYS[: self.arrays]
        )
        return f"{room}{MAIN}  let row = item;\n{body}\n}}\n"


def shared_bytes(n: int, arrays: int) -> int:
    """Workgroup memory for so many arrays of n cells a row."""
    return 4 * arrays * n * LANES


def add_call(
    work: Work,
    name: str,
    accesses: tuple[Access, ...],
    values: Mapping[str, int | float],
    cells: LaneCells,
    turns: int,
    source: str,
    workgroup: int = LANES,
    uses: tuple[str, ...] = (),
) -> None:
    """The kernel of `source`, in which a lane takes so many loop turns for a row."""
    tile = cells.tile(work.rows, turns)
    work.call(
        name,
        1,
        accesses,
        values,
        most_rows=cells.most_rows(work.rows, turns),
        turns=float(tile * (turns + 1)),
        grid=(("rows", tile),),
        workgroup=workgroup,
        source=source,
        uses=uses,
        shared_bytes=cells.shared_bytes,
    )
