"""Faster ways to transform rows: generated text of two shapes.

group   one workgroup shares a row in workgroup memory, one dispatch
passes  unrolled Stockham passes through global memory: rows too long for that

Each is a `Smooth` of `rlxweb.recipes.fft_calls`, so real rows, inverses and Bluestein's
lengths come with it. A recipe is None when the row does not suit; the declared recipe,
and after it the composition, then serve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rlxweb.ir.lowering import Recipe
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import Limits
from rlxweb.recipes import fft_calls as calls
from rlxweb.recipes import fft_plan as plan
from rlxweb.recipes.butterfly import Emitter, Pair
from rlxweb.recipes.entry import MAIN_TEXT
from rlxweb.recipes.fft_calls import Rows, Smooth, Work, any_length
from rlxweb.recipes.fft_rows import Last, Load, passes, powers

RecipeFor = Callable[[Types, TensorType, Mapping[str, Any], Limits], Recipe | None]

MOST_RADIX = 32
PASS_RADIX = 16


def unrolls(n: int, most: int) -> bool:
    """True when butterflies of at most `most`, or of a prime, transform length n."""
    return max(plan.radices(n, most)) <= max(most, plan.MAX_PRIME)


def reader(rows: Rows) -> Load:
    """Load of a value of the row that starts at `row_in`."""

    def part(e: Emitter, cell: str, name: str, there: int | None) -> str:
        if there is None:
            return "0.0"
        return e.let(f"ld0(row_in + ({cell}) * u.in_step + u.in_{name})")

    def load(e: Emitter, base: str, offset: int) -> Pair:
        cell = f"{base} + {offset}u"
        return part(e, cell, "re", rows.re), part(e, cell, "im", rows.im)

    return load


def writer(rows: Rows, store: str, keep: int, n: int) -> Last:
    """Store of value `to` of the row that starts at `row_out`, times the scale."""

    def write(e: Emitter, to: str, cell: str, y: Pair) -> None:
        at = e.let(to)
        lines = [
            f"{store}(row_out + {at} * u.out_step + u.out_{name}, {value} * u.scale);"
            for name, value, there in zip(
                ("re", "im"), y, (rows.re, rows.im), strict=True
            )
            if there is not None
        ]
        text = " ".join(lines)
        e.do(f"if ({at} < {keep}u) {{ {text} }}" if keep < n else text)

    return write


def values_of(source: Rows, target: Rows, scale: float) -> dict[str, int | float]:
    """The uniforms that tell where rows lie, and the scale."""
    return {**source.values("in"), **target.values("out"), "scale": float(scale)}


def walk_turns(n: int, radices: tuple[int, ...]) -> int:
    """Return the loop turns of one lane that walks a row: a butterfly each."""
    return sum(n // radix for radix in radices)


def group_radices(n: int) -> tuple[int, ...]:
    """Small radices for short rows, so that a workgroup has enough butterflies."""
    return plan.radices(n, 16 if n >= 1024 else 8 if n >= 128 else 4)


def shared_load(e: Emitter, base: str, offset: int) -> Pair:
    """A value of the row in a workgroup's arrays `re` and `im`."""
    cell = f"{base} + {offset}u"
    return e.let(f"re[{cell}]"), e.let(f"im[{cell}]")


def shared_store(e: Emitter, cell: str, y: Pair) -> None:
    """The counterpart of `shared_load`."""
    e.do(f"re[{cell}] = {y[0]};")
    e.do(f"im[{cell}] = {y[1]};")


def group_rows(
    work: Work, n: int, source: Rows, target: Rows, keep: int, scale: float
) -> None:
    """One workgroup a row, in workgroup memory."""
    radices = group_radices(n)
    body = passes(
        n,
        radices,
        lambda i: f"ld1({i})",
        reader(source),
        shared_load,
        shared_store,
        writer(target, "st2", keep, n),
    )
    text = (
        f"var<workgroup> re: array<f32, {n}>;\nvar<workgroup> im: array<f32, {n}>;"
        f"\n{MAIN_TEXT}  let row_in = item * u.in_pitch;\n"
        f"  let row_out = item * u.out_pitch;\n{body}\n}}\n"
    )
    work.call(
        f"fft_group_{n}",
        1,
        (source.access(), work.roots(n), target.access("write")),
        values_of(source, target, scale),
        grid=(("rows", 1),),
        per="workgroup",
        turns=float(walk_turns(n, radices)),
        workgroup=group_size(n // max(radices)),
        source=text,
        shared_bytes=8 * n,
    )


def unrolled_passes(
    work: Work, n: int, source: Rows, target: Rows, keep: int, scale: float
) -> None:
    """Stockham passes, one butterfly an invocation."""
    radices, done = plan.radices(n, PASS_RADIX), 1
    table = work.roots(n)
    for at, radix in enumerate(radices):
        last = at == len(radices) - 1
        into = target if last else work.room(n, "ab"[at % 2])
        work.call(
            f"fft_pass_{radix}",
            n // radix,
            (source.access(), table, into.access("write")),
            {**values_of(source, into, scale if last else 1.0), "n": n, "done": done},
            source=_pass_text(radix, source, into, keep if last else n, n),
        )
        source, done = into, done * radix


def _pass_text(radix: int, source: Rows, target: Rows, keep: int, n: int) -> str:
    e = Emitter()
    load, write = reader(source), writer(target, "st2", keep, n)

    def root(q: int) -> Pair:
        turn = e.let(f"m * {q}u * (stride / u.done)")
        return e.let(f"ld1({turn})"), e.let(f"ld1(u.n + {turn})")

    turns = powers(e, radix, root)
    xs = [load(e, f"j + {q}u * stride", 0) for q in range(radix)]
    xs = [e.times(x, *turns[q]) if q else x for q, x in enumerate(xs)]
    for k, y in enumerate(e.dft(xs)):
        write(e, f"to + {k}u * u.done", "", y)
    return f"""{MAIN_TEXT}  let stride = u.cells;
  let row = item / stride;
  let j = item % stride;
  let m = j % u.done;
  let to = (j / u.done) * u.done * {radix}u + m;
  let row_in = row * u.in_pitch;
  let row_out = row * u.out_pitch;
{e.text("  ")}
}}
"""


def group_size(wanted: int) -> int:
    """A power of two of invocations near `wanted`, 32 to 256."""
    return min(256, max(32, 1 << max(0, wanted - 1).bit_length()))


Choice = Callable[[int, tuple[int, ...], Limits], Smooth | None]


def by_rule(choose: Choice) -> Callable[[str], RecipeFor]:
    """Recipes of fft, rfft and irfft by what `choose` gives for rows and lengths.

    Its last argument is what the device allows; what it gives transforms any length.
    """

    def of(op: str) -> RecipeFor:
        def recipe(
            types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
        ) -> Recipe | None:
            shape = types[0].shape
            n = calls.length_of(op, shape[-1], attrs)
            lengths = calls.smooth_lengths(n, op != "fft")
            transform = choose(math.prod(shape[:-1]), lengths, limits)
            return transform and calls.recipe_of(op, shape, attrs, transform)

        return recipe

    return of


@by_rule
def group_recipe(rows: int, lengths: tuple[int, ...], limits: Limits) -> Smooth | None:
    """A workgroup a row."""
    room = limits.max_compute_workgroup_storage_size
    fits = (max(group_radices(n)) <= MOST_RADIX and 8 * n <= room for n in lengths)
    return any_length(group_rows) if all(fits) else None


@by_rule
def pass_recipe(rows: int, lengths: tuple[int, ...], limits: Limits) -> Smooth | None:
    """Unrolled passes: for rows of any length."""
    fits = all(unrolls(n, PASS_RADIX) for n in lengths)
    return any_length(unrolled_passes) if fits else None
