"""WGSL source of cooperative transforms: a group of lanes shares a row and keeps its
values in registers.

Every lane of a team holds as many values of its row as the largest pass needs and meets
the others in workgroup memory between two passes only. No loops: drivers bound those.
Short rows share a workgroup, so that none of its lanes idles. Where both parts of a row
are too much for the memory they take turns in it (`split`).

The cells of workgroup memory are swizzled: cell c lies at c ^ ((c >> a) & 31) ^
((c >> b) & 31), which is one to one within every 32 cells, needs no further memory and
is linear over exclusive or, so that it costs one instruction an access. The shifts were
searched for by counting bank conflicts (tests/lanes).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from rlxweb.codegen.butterfly import ComplexNames, WgslButterflyBuilder
from rlxweb.codegen.fft_arithmetic import F64
from rlxweb.core.limits import Limits
from rlxweb.ops.fft.wgsl.in_place import (
    ROOT_READ_STEP,
    digit_reversed_cell,
    root_powers,
)

MAX_VALUES_PER_LANE = 24
"""Maximum number of complex values a lane holds: beyond it, registers spill or too few
lanes fit a core.
"""
MAX_RADIX = 16
MIN_WORKGROUP_LANES = 64
"""Minimum number of lanes of a workgroup of short rows: two warps, or one wave on AMD.
"""
MAX_PASSES = 4
BANK_MASK = 31
BANK_COUNT = BANK_MASK + 1

SWIZZLE_SHIFTS: dict[tuple[int, ...], tuple[int, ...]] = {
    (4, 4): (2,),
    (8, 4): (1, 3),
    (12, 4): (2,),
    (8, 8): (3,),
    (12, 8): (3,),
    (16, 8): (1, 4),
    (12, 4, 4): (1, 4),
    (16, 16): (4,),
    (8, 8, 6): (3,),
    (8, 8, 8): (2, 4),
    (10, 4, 4, 4): (2, 6),
    (12, 8, 8): (2, 4),
    (16, 8, 8): (3, 5),
    (16, 16, 8): (3, 5),
    (8, 8, 8, 6): (4, 5),
    (16, 16, 16): (4, 7),
    (12, 8, 8, 8): (3, 9),
    (16, 8, 8, 8): (3, 8),
    (8, 8, 4): (1, 3),
    (8, 8, 4, 4): (3, 5),
    (8, 8, 8, 4): (2, 5),
    (8, 8, 8, 8): (3, 9),
}
"""Swizzle shifts by radices, found by `python -m tests.lanes.fft_bank_conflict_search`;
other radices gain little.
"""

LoadInput = Callable[[WgslButterflyBuilder, str, int], ComplexNames]
"""(builder, base, offset) → names of the input at base + offset"""
BinValues = list[tuple[str, ComplexNames]]
"""Pairs (bin, value) of all values a lane holds at the end."""


@lru_cache(maxsize=256)
def cooperative_radices(n: int, max_radix: int = MAX_RADIX) -> tuple[int, ...]:
    """Return the radices of the fewest passes, two or more, in which every lane
    computes whole butterflies; () if there are none.

    A lane holds the least common multiple of the radices. Among as few passes, the
    least of that, then the evenest.
    """
    for count in range(2, MAX_PASSES + 1):
        candidates = [
            (math.lcm(*radices), radices[0], radices)
            for radices in _factorizations(n, count, max_radix)
            if math.lcm(*radices) <= MAX_VALUES_PER_LANE
        ]
        if candidates:
            return min(candidates)[2]
    return ()


def _factorizations(n: int, count: int, max_factor: int) -> list[tuple[int, ...]]:
    """Return all factorizations of n into `count` descending factors from 2 to
    `max_factor`.
    """
    if count == 1:
        return [(n,)] if 2 <= n <= max_factor else []
    return [
        (r, *rest)
        for r in range(min(n, max_factor), 1, -1)
        if n % r == 0
        for rest in _factorizations(n // r, count - 1, r)
    ]


@dataclass(frozen=True, slots=True)
class CooperativeFftLayout:
    """Distribution of rows of length n over the lanes of a workgroup.

    rows_per_workgroup  of a workgroup
    is_split  real and imaginary parts go through the memory in turn
    shifts  of the swizzle; () is none
    """

    n: int
    radices: tuple[int, ...]
    rows_per_workgroup: int = 1
    is_split: bool = False
    shifts: tuple[int, ...] = ()

    @property
    def values_per_lane(self) -> int:
        """Number of complex values a lane holds."""
        return math.lcm(*self.radices)

    @property
    def lanes_per_row(self) -> int:
        """Number of lanes that share a row."""
        return self.n // self.values_per_lane

    @property
    def active_lanes(self) -> int:
        """Number of lanes of a workgroup that have a row."""
        return self.lanes_per_row * self.rows_per_workgroup

    @property
    def workgroup_size(self) -> int:
        """Invocations of a workgroup, a power of two."""
        return max(1, 1 << (self.active_lanes - 1).bit_length())

    @property
    def is_power_of_two(self) -> bool:
        """True when n is a power of two: then base + offset is base ^ offset."""
        return self.n & (self.n - 1) == 0

    @property
    def lane_groups(self) -> int:
        """Number of lane groups of a workgroup, including the incomplete one of the
        lanes left over.
        """
        return -(-self.workgroup_size // self.lanes_per_row)

    @property
    def cell_count(self) -> int:
        """Number of cells of an array in workgroup memory. Lanes without a row have a
        row's cells too.
        """
        cells = self.n * self.lane_groups
        return -(-cells // BANK_COUNT) * BANK_COUNT if self.shifts else cells

    @property
    def shared_bytes(self) -> int:
        """Bytes of workgroup memory."""
        return 4 * self.cell_count * (1 if self.is_split else 2)

    def memory_declarations(self) -> str:
        """Return the WGSL declarations of workgroup memory."""
        names = ("re",) if self.is_split else ("re", "im")
        return "".join(
            f"var<workgroup> {name}: array<f32, {self.cell_count}>;\n" for name in names
        )

    def lane_declarations(self) -> str:
        """Return the WGSL declarations of a lane: `t` in its group, the group's
        `cells`, its `row`, and whether it is `on`.
        """
        has_idle_lanes = self.active_lanes < self.workgroup_size
        is_active = f"team < {self.rows_per_workgroup}u && " if has_idle_lanes else ""
        lines = [
            f"let t = lid % {self.lanes_per_row}u;",
            f"let team = lid / {self.lanes_per_row}u;",
            f"let cells = team * {self.n}u;",
            f"let row = min(item * {self.rows_per_workgroup}u + team, u.rows - 1u);",
            f"let on = {is_active}item * {self.rows_per_workgroup}u + team < u.rows;",
        ]
        if self.has_bank_tilt:
            mask = min(self.n, BANK_COUNT) - 1
            lines.append(f"let tilt = (team * {self.lanes_per_row}u) & {mask}u;")
        return "".join(f"  {line}\n" for line in lines)

    def linear_cell(self, index: str) -> str:
        """Return the cell of an index of which neighbouring lanes have neighbouring
        values.

        Small teams of one warp would meet in the same banks: each has its own tilt.
        """
        return f"cells + ({index} ^ tilt)" if self.has_bank_tilt else f"cells + {index}"

    @property
    def has_bank_tilt(self) -> bool:
        """True when each lane group offsets its cells to avoid bank conflicts."""
        return self.is_power_of_two and self.rows_per_workgroup > 1

    def swizzled_cells(
        self, e: WgslButterflyBuilder, base: str, step: int, count: int
    ) -> tuple[str, ...]:
        """Return the swizzled indices of the cells base + q * step for q below
        count.
        """
        offsets = [q * step for q in range(count)]
        if not self.shifts:
            return tuple(f"{base} + {offset}u" for offset in offsets)
        if not self.is_power_of_two:
            return tuple(
                self._emit_swizzle(
                    e, e.emit_let(f"{base} + {offset}u") if offset else base
                )
                for offset in offsets
            )
        # No bit is in both: the swizzle of the sum is that of the parts.
        swizzled_base = self._emit_swizzle(e, base)
        return tuple(
            f"{swizzled_base} ^ {self.swizzle_cell(offset)}u" for offset in offsets
        )

    def swizzle_cell(self, cell: int) -> int:
        """Return the swizzled index of a cell."""
        out = cell
        for shift in self.shifts:
            out ^= (cell >> shift) & BANK_MASK
        return out

    def _emit_swizzle(self, e: WgslButterflyBuilder, cell: str) -> str:
        """Emit the swizzle of a cell's index and return the result's name."""
        terms = [f"(({cell} >> {shift}u) & {BANK_MASK}u)" for shift in self.shifts]
        return e.emit_let(" ^ ".join([cell, *terms]))


def fit_cooperative_fft(
    n: int, limits: Limits, extra_bytes: int = 0, max_radix: int = MAX_RADIX
) -> CooperativeFftLayout | None:
    """Return the layout for rows of n within a device's limits, or None.

    extra_bytes  bytes of workgroup memory that a team needs besides its values
    """
    radices = cooperative_radices(n, max_radix)
    if not radices:
        return None
    single_row = CooperativeFftLayout(
        n, radices, 1, False, SWIZZLE_SHIFTS.get(radices, ())
    )
    max_lanes = limits.max_linear_workgroup_size
    max_shared_bytes = limits.max_compute_workgroup_storage_size
    rows = max(1, MIN_WORKGROUP_LANES // single_row.lanes_per_row)
    for split, count in ((False, rows), (False, 1), (True, 1)):
        layout = replace(single_row, rows_per_workgroup=count, is_split=split)
        if (
            layout.workgroup_size <= max_lanes
            and layout.shared_bytes + extra_bytes * layout.lane_groups
            <= max_shared_bytes
        ):
            return layout
    return None


# --- roots of unity ---------------------------------------------------------------


def _read_powers(radix: int) -> list[int]:
    """Return the powers that are read; `root_powers` computes the others from them."""
    return [k for k in range(1, radix) if k < ROOT_READ_STEP or k % ROOT_READ_STEP == 0]


def twiddle_table(layout: CooperativeFftLayout) -> F64:
    """Return the roots of unity of every pass but the last, two powers per vec4, value
    after value.

    So neighbouring lanes read neighbouring vec4s, whatever the power.
    """
    parts, done_length = [], 1
    for radix in layout.radices[:-1]:
        stride = layout.n // done_length // radix
        base_angles = np.arange(stride) * (-2.0 * math.pi * done_length / layout.n)
        powers_read = _read_powers(radix)
        for low, high in itertools.zip_longest(
            powers_read[::2], powers_read[1::2], fillvalue=0
        ):
            angles = [f(k * base_angles) for k in (low, high) for f in (np.cos, np.sin)]
            parts.append(np.stack(angles, axis=1).ravel())
        done_length *= radix
    return np.concatenate(parts)


def _twiddles(
    e: WgslButterflyBuilder, layout: CooperativeFftLayout, pass_index: int, m: str
) -> list[ComplexNames]:
    """Return w^0 … w^(radix - 1) of a pass for the value m."""
    pass_start, done_length = 0, 1
    for radix in layout.radices[:pass_index]:
        stride = layout.n // done_length // radix
        pass_start += stride * -(-len(_read_powers(radix)) // 2)
        done_length *= radix
    radix = layout.radices[pass_index]
    stride = layout.n // done_length // radix
    powers_read = _read_powers(radix)
    vectors = {}
    for g in range(-(-len(powers_read) // 2)):
        start = pass_start + g * stride
        vectors[g] = e.emit_let(f"turn({m} + {start}u)" if start else f"turn({m})")

    def read_root(k: int) -> ComplexNames:
        g, high = divmod(powers_read.index(k), 2)
        return (
            f"{vectors[g]}.{'z' if high else 'x'}",
            f"{vectors[g]}.{'w' if high else 'y'}",
        )

    return root_powers(e, radix, read_root)


# --- passes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaneButterfly:
    """One butterfly of a lane: its number, the index of its roots of unity, the indices
    of its cells.
    """

    index: str
    twiddle_index: str
    cells: tuple[str, ...]


def cooperative_transform(
    layout: CooperativeFftLayout,
    e: WgslButterflyBuilder,
    load_input: LoadInput,
    opaque_zero: str = "",
) -> BinValues:
    """Emit the transform of the lane group's row; `turn(i)` reads the table's vec4 i.

    It ends without a barrier. `opaque_zero` names a zero that a compiler cannot know
    for one, lest it keeps all roots and addresses in registers over a loop.
    """
    radix = layout.radices[0]
    xs = [
        load_input(e, "t", b * layout.lanes_per_row + q * (layout.n // radix))
        for b in range(layout.values_per_lane // radix)
        for q in range(radix)
    ]
    butterflies = _lane_butterflies(layout, e, 0, opaque_zero)
    for pass_index, radix in enumerate(layout.radices[:-1]):
        ys: list[ComplexNames] = []
        for b, butterfly in enumerate(butterflies):
            m = (
                f"{butterfly.twiddle_index} + {opaque_zero}"
                if opaque_zero
                else butterfly.twiddle_index
            )
            twiddles = _twiddles(e, layout, pass_index, m)
            results = e.dft(xs[b * radix : (b + 1) * radix])
            ys += [
                e.multiply_complex(y, *twiddles[k]) if k else y
                for k, y in enumerate(results)
            ]
        next_butterflies = _lane_butterflies(layout, e, pass_index + 1, opaque_zero)
        xs = _exchange_values(
            layout, e, _all_cells(butterflies), ys, _all_cells(next_butterflies)
        )
        butterflies = next_butterflies
    radix, out = layout.radices[-1], []
    for b, butterfly in enumerate(butterflies):
        results = e.dft(xs[b * radix : (b + 1) * radix])
        step = layout.n // radix
        out += [(f"{butterfly.index} + {k * step}u", y) for k, y in enumerate(results)]
    return out


def _lane_butterflies(
    layout: CooperativeFftLayout,
    e: WgslButterflyBuilder,
    pass_index: int,
    opaque_zero: str,
) -> list[LaneButterfly]:
    """Return the butterflies that a lane computes in a pass."""
    radix, out = layout.radices[pass_index], []
    length = layout.n // math.prod(layout.radices[:pass_index])
    stride = length // radix
    cells = f"cells + {opaque_zero}" if opaque_zero else "cells"
    for b in range(layout.values_per_lane // radix):
        j = e.emit_let(f"t + {b * layout.lanes_per_row}u") if b else "t"
        m = (
            j
            if pass_index == 0
            else "0u"
            if stride == 1
            else e.emit_let(f"{j} % {stride}u")
        )
        if pass_index == 0:
            base = j
        elif stride == 1:
            base = digit_reversed_cell(e, j, layout.radices[:-1], layout.n)
        else:
            base = f"({j} / {stride}u) * {length}u + {m}"
        swizzled_cells = layout.swizzled_cells(
            e, e.emit_let(f"{cells} + {base}"), stride, radix
        )
        out.append(LaneButterfly(j, m, swizzled_cells))
    return out


def _all_cells(butterflies: Sequence[LaneButterfly]) -> list[str]:
    """Return the cells of all butterflies, in order."""
    return [cell for butterfly in butterflies for cell in butterfly.cells]


def _exchange_values(
    layout: CooperativeFftLayout,
    e: WgslButterflyBuilder,
    store_cells: list[str],
    values: list[ComplexNames],
    load_cells: list[str],
) -> list[ComplexNames]:
    """Store the lane's values and load those of the wanted cells after a barrier."""
    barrier = "workgroupBarrier();"

    def emit_stores(array: str, part: int) -> None:
        for cell, value in zip(store_cells, values, strict=True):
            e.emit_statement(f"{array}[{cell}] = {value[part]};")

    def emit_loads(array: str) -> list[str]:
        return [e.emit_let(f"{array}[{cell}]") for cell in load_cells]

    emit_stores("re", 0)
    if not layout.is_split:
        emit_stores("im", 1)
        e.emit_statement(barrier)
        return list(zip(emit_loads("re"), emit_loads("im"), strict=True))
    e.emit_statement(barrier)
    re = emit_loads("re")
    e.emit_statement(barrier)  # the imaginary parts go where others still read
    emit_stores("re", 1)
    e.emit_statement(barrier)
    return list(zip(re, emit_loads("re"), strict=True))
