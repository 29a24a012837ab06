"""Alternative FFT kernels with generated text of two shapes.

group   one workgroup shares a row in workgroup memory, one dispatch
in_place_passes  unrolled Stockham passes through global memory: rows too long for that

Each is a `SmoothTransform` of `rlxweb.ops.fft.wgsl.plan`, so real rows, inverses and
Bluestein's lengths come with it. A plan is None when the row does not suit; the
declared plan, and after it the decomposition, then serve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rlxweb.codegen import fft_arithmetic
from rlxweb.codegen.butterfly import ComplexNames, WgslButterflyBuilder
from rlxweb.codegen.wgsl_entry_point import MAIN_TEXT
from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import KernelPlan
from rlxweb.ir.op import TensorType, Types
from rlxweb.ops.fft.wgsl.in_place import (
    LoadValue,
    StoreBin,
    in_place_passes,
    root_powers,
)
from rlxweb.ops.fft.wgsl.plan import (
    ComplexRowLayout,
    RowPlanBuilder,
    SmoothTransform,
    plan_fft,
    smooth_lengths,
    transform_length,
    with_bluestein,
)
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule

FFT_OPS = ("fft", "rfft", "irfft")
MAX_WORKGROUP_RADIX = 32
MAX_PASS_RADIX = 16


def can_unroll(n: int, max_radix: int) -> bool:
    """Return whether butterflies of at most `max_radix`, or of a prime, transform
    length n.
    """
    return max(fft_arithmetic.radices(n, max_radix)) <= max(
        max_radix, fft_arithmetic.MAX_PRIME
    )


def row_reader(rows: ComplexRowLayout) -> LoadValue:
    """Return the loader of a value of the row that starts at `row_in`."""

    def load_part(
        e: WgslButterflyBuilder, cell: str, name: str, part_offset: int | None
    ) -> str:
        if part_offset is None:
            return "0.0"
        return e.emit_let(f"ld0(row_in + ({cell}) * u.in_step + u.in_{name})")

    def load_value(e: WgslButterflyBuilder, base: str, offset: int) -> ComplexNames:
        cell = f"{base} + {offset}u"
        return load_part(e, cell, "re", rows.re), load_part(e, cell, "im", rows.im)

    return load_value


def row_writer(
    rows: ComplexRowLayout, store_function: str, output_count: int, n: int
) -> StoreBin:
    """Return the function that stores value `to` of the row that starts at `row_out`,
    times the scale.
    """

    def store_bin(e: WgslButterflyBuilder, to: str, cell: str, y: ComplexNames) -> None:
        bin_name = e.emit_let(to)
        lines = [
            f"{store_function}(row_out + {bin_name} * u.out_step + u.out_{name}, "
            f"{value} * u.scale);"
            for name, value, part_offset in zip(
                ("re", "im"), y, (rows.re, rows.im), strict=True
            )
            if part_offset is not None
        ]
        text = " ".join(lines)
        e.emit_statement(
            f"if ({bin_name} < {output_count}u) {{ {text} }}"
            if output_count < n
            else text
        )

    return store_bin


def row_uniforms(
    source: ComplexRowLayout, target: ComplexRowLayout, scale: float
) -> dict[str, int | float]:
    """Return the uniforms with the layouts of both rows, and the scale."""
    return {**source.uniforms("in"), **target.uniforms("out"), "scale": float(scale)}


def row_loop_iterations(n: int, radices: tuple[int, ...]) -> int:
    """Return the loop iterations of one lane that transforms a row, one per
    butterfly.
    """
    return sum(n // radix for radix in radices)


def workgroup_radices(n: int) -> tuple[int, ...]:
    """Return small radices for short rows, so that a workgroup has enough
    butterflies.
    """
    return fft_arithmetic.radices(n, 16 if n >= 1024 else 8 if n >= 128 else 4)


def load_shared(e: WgslButterflyBuilder, base: str, offset: int) -> ComplexNames:
    """Load a value of the row from a workgroup's arrays `re` and `im`."""
    cell = f"{base} + {offset}u"
    return e.emit_let(f"re[{cell}]"), e.emit_let(f"im[{cell}]")


def store_shared(e: WgslButterflyBuilder, cell: str, y: ComplexNames) -> None:
    """Store a value of the row in a workgroup's arrays `re` and `im`."""
    e.emit_statement(f"re[{cell}] = {y[0]};")
    e.emit_statement(f"im[{cell}] = {y[1]};")


def add_workgroup_rows(
    builder: RowPlanBuilder,
    n: int,
    source: ComplexRowLayout,
    target: ComplexRowLayout,
    output_count: int,
    scale: float,
) -> None:
    """Add the transform by one workgroup per row, in workgroup memory."""
    radices = workgroup_radices(n)
    body = in_place_passes(
        n,
        radices,
        lambda i: f"ld1({i})",
        row_reader(source),
        load_shared,
        store_shared,
        row_writer(target, "st2", output_count, n),
    )
    text = (
        f"var<workgroup> re: array<f32, {n}>;\nvar<workgroup> im: array<f32, {n}>;"
        f"\n{MAIN_TEXT}  let row_in = item * u.in_pitch;\n"
        f"  let row_out = item * u.out_pitch;\n{body}\n}}\n"
    )
    builder.add_dispatches(
        f"fft_group_{n}",
        1,
        (source.access(), builder.roots_table(n), target.access("write")),
        row_uniforms(source, target, scale),
        grid=(("rows", 1),),
        item_unit="workgroup",
        iterations=float(row_loop_iterations(n, radices)),
        workgroup_size=workgroup_size_near(n // max(radices)),
        source=text,
        shared_bytes=8 * n,
    )


def add_unrolled_passes(
    builder: RowPlanBuilder,
    n: int,
    source: ComplexRowLayout,
    target: ComplexRowLayout,
    output_count: int,
    scale: float,
) -> None:
    """Add Stockham passes, one butterfly per invocation."""
    radices, done_length = fft_arithmetic.radices(n, MAX_PASS_RADIX), 1
    table = builder.roots_table(n)
    for pass_index, radix in enumerate(radices):
        is_last = pass_index == len(radices) - 1
        pass_target = (
            target if is_last else builder.scratch_rows(n, "ab"[pass_index % 2])
        )
        builder.add_dispatches(
            f"fft_pass_{radix}",
            n // radix,
            (source.access(), table, pass_target.access("write")),
            {
                **row_uniforms(source, pass_target, scale if is_last else 1.0),
                "n": n,
                "done": done_length,
            },
            source=_pass_source(
                radix, source, pass_target, output_count if is_last else n, n
            ),
        )
        source, done_length = pass_target, done_length * radix


def _pass_source(
    radix: int,
    source: ComplexRowLayout,
    target: ComplexRowLayout,
    output_count: int,
    n: int,
) -> str:
    e = WgslButterflyBuilder()
    load, write = row_reader(source), row_writer(target, "st2", output_count, n)

    def read_root(q: int) -> ComplexNames:
        index = e.emit_let(f"m * {q}u * (stride / u.done)")
        return e.emit_let(f"ld1({index})"), e.emit_let(f"ld1(u.n + {index})")

    twiddles = root_powers(e, radix, read_root)
    xs = [load(e, f"j + {q}u * stride", 0) for q in range(radix)]
    xs = [e.multiply_complex(x, *twiddles[q]) if q else x for q, x in enumerate(xs)]
    for k, y in enumerate(e.dft(xs)):
        write(e, f"to + {k}u * u.done", "", y)
    return f"""{MAIN_TEXT}  let stride = u.cells;
  let row = item / stride;
  let j = item % stride;
  let m = j % u.done;
  let to = (j / u.done) * u.done * {radix}u + m;
  let row_in = row * u.in_pitch;
  let row_out = row * u.out_pitch;
{e.render("  ")}
}}
"""


def workgroup_size_near(target_size: int) -> int:
    """Return a power of two of invocations near `target_size`, from 32 to 256."""
    return min(256, max(32, 1 << max(0, target_size - 1).bit_length()))


TransformChoice = Callable[[int, tuple[int, ...], Limits], SmoothTransform | None]


def fft_rules(choose: TransformChoice) -> Callable[[str], WgslPlanRule]:
    """Return the plan rules of fft, rfft and irfft that use the transform which
    `choose` returns for rows and lengths.

    Its last argument is what the device allows; what it gives transforms any length.
    """

    def op_rule(op: str) -> WgslPlanRule:
        def build_plan(
            types: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
        ) -> KernelPlan | None:
            shape = types[0].shape
            n = transform_length(op, shape[-1], attrs)
            lengths = smooth_lengths(n, op != "fft")
            transform = choose(math.prod(shape[:-1]), lengths, limits)
            return transform and plan_fft(op, shape, attrs, transform)

        return build_plan

    return op_rule


@fft_rules
def workgroup_fft_rule(
    rows: int, lengths: tuple[int, ...], limits: Limits
) -> SmoothTransform | None:
    """Choose one workgroup per row."""
    max_shared_bytes = limits.max_compute_workgroup_storage_size
    fits = (
        max(workgroup_radices(n)) <= MAX_WORKGROUP_RADIX and 8 * n <= max_shared_bytes
        for n in lengths
    )
    return with_bluestein(add_workgroup_rows) if all(fits) else None


@fft_rules
def unrolled_fft_rule(
    rows: int, lengths: tuple[int, ...], limits: Limits
) -> SmoothTransform | None:
    """Choose unrolled passes, for rows of any length."""
    fits = all(can_unroll(n, MAX_PASS_RADIX) for n in lengths)
    return with_bluestein(add_unrolled_passes) if fits else None


KERNELS = (
    *(
        KernelVariant(f"{op}, workgroup a row", op, workgroup_fft_rule(op))
        for op in FFT_OPS
    ),
    *(
        KernelVariant(f"{op}, unrolled passes", op, unrolled_fft_rule(op))
        for op in FFT_OPS
    ),
)
