"""Kernel plans of cooperative transforms: fft, rfft and irfft by groups of lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rlxweb.codegen.butterfly import WgslButterflyBuilder
from rlxweb.codegen.wgsl_entry_point import MAIN_TEXT
from rlxweb.core.limits import Limits
from rlxweb.ir.lowering import OperandAccess
from rlxweb.ops.fft.wgsl.cooperative import (
    MAX_RADIX,
    CooperativeFftLayout,
    cooperative_transform,
    fit_cooperative_fft,
    twiddle_table,
)
from rlxweb.ops.fft.wgsl.in_place import StoreBin
from rlxweb.ops.fft.wgsl.plan import (
    ComplexRowLayout,
    RowPlanBuilder,
    SmoothTransform,
    with_bluestein,
)
from rlxweb.ops.fft.wgsl.variants import (
    FFT_OPS,
    fft_rules,
    row_reader,
    row_uniforms,
    row_writer,
)
from rlxweb.ops.kernel_variant import KernelVariant, WgslPlanRule


def twiddle_reader(access: int) -> str:
    """Return the WGSL function by which `cooperative_transform` reads its table of
    roots.
    """
    return f"fn turn(i: u32) -> vec4<f32> {{ return ld{access}(i); }}\n"


def cooperative_row_transform(
    layouts: Callable[[int], CooperativeFftLayout],
) -> SmoothTransform:
    """Return the transform that uses the layout found for each row length."""

    def add_transform(
        builder: RowPlanBuilder,
        n: int,
        source: ComplexRowLayout,
        target: ComplexRowLayout,
        output_count: int,
        scale: float,
    ) -> None:
        layout = layouts(n)
        builder.add_dispatches(
            f"fft_team_{n}",
            1,
            (source.access(), twiddle_access(builder, layout), target.access("write")),
            row_uniforms(source, target, scale),
            grid=(("rows", layout.rows_per_workgroup),),
            item_unit="workgroup",
            workgroup_size=layout.workgroup_size,
            source=_row_source(
                layout, source, row_writer(target, "st2", output_count, n)
            ),
            shared_bytes=layout.shared_bytes,
            is_in_bounds=True,
        )

    return add_transform


def twiddle_access(
    builder: RowPlanBuilder, layout: CooperativeFftLayout
) -> OperandAccess:
    """Return the access to the table of roots, read one vec4 at a time."""
    table = twiddle_table(layout)
    access = builder.host_table(f"turns {layout.n}", lambda: table, table.size)
    return replace(access, is_vec4=True)


def _row_source(
    layout: CooperativeFftLayout, source: ComplexRowLayout, store_bin: StoreBin
) -> str:
    e, stores = WgslButterflyBuilder(), WgslButterflyBuilder("s")
    for output_bin, value in cooperative_transform(layout, e, row_reader(source)):
        store_bin(stores, output_bin, "", value)
    return (
        f"{twiddle_reader(1)}{layout.memory_declarations()}{MAIN_TEXT}{layout.lane_declarations()}"
        "  let row_in = row * u.in_pitch;\n  let row_out = row * u.out_pitch;\n"
        f"{e.render('  ')}\n  if (on) {{\n{stores.render()}\n  }}\n}}\n"
    )


def cooperative_fft_rule(
    is_swizzled: bool = True, max_radix: int = MAX_RADIX
) -> Callable[[str], WgslPlanRule]:
    """Return the rule of a group of lanes per row; pass other arguments only to measure
    their effect.
    """

    @fft_rules
    def choose_transform(
        rows: int, lengths: tuple[int, ...], limits: Limits
    ) -> SmoothTransform | None:
        layouts = {n: fit_cooperative_fft(n, limits, 0, max_radix) for n in lengths}
        fitting = {n: layout for n, layout in layouts.items() if layout is not None}
        if len(fitting) < len(layouts):
            return None
        if not is_swizzled:
            fitting = {n: replace(layout, shifts=()) for n, layout in fitting.items()}
        return with_bluestein(cooperative_row_transform(fitting.__getitem__))

    return choose_transform


KERNELS = tuple(
    KernelVariant(f"{op}, team of lanes a row", op, cooperative_fft_rule()(op))
    for op in FFT_OPS
)
