"""Kernel plans of Fourier transforms of rows: the row layouts and dispatches that all
FFT kernels share.

`ComplexRowLayout` says where complex rows lie in an operand (block, interleaved, real),
`RowPlanBuilder` collects dispatches, scratch and tables. The three plans (complex,
real, inverse real) and Bluestein's detour are written once over `SmoothTransform`, the
part that differs: Stockham passes through global memory here, single-dispatch kernels
in `variants.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.codegen import fft_arithmetic
from rlxweb.ir.lowering import (
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ir.shape_arithmetic import Shape, numel

IN, OUT = BufferRef("in"), BufferRef("out")


@dataclass(frozen=True, slots=True)
class ComplexRowLayout:
    """Layout of complex rows: value k of row r has its real part at r * pitch + k *
    step + re, its imaginary part likewise at im.

    A part that is None is not there: read as 0, never written.
    """

    ref: BufferRef
    pitch: int
    step: int = 1
    re: int | None = 0
    im: int | None = None

    def swap_parts(self) -> ComplexRowLayout:
        """Exchange the real and imaginary parts; a forward transform of swapped rows is
        the inverse transform.
        """
        return replace(self, re=self.im, im=self.re)

    @property
    def part_mask(self) -> int:
        """Bit mask of the parts that exist: bit 0 for the real part, bit 1 for the
        imaginary part.
        """
        return (self.re is not None) + 2 * (self.im is not None)

    def access(self, mode: Any = "read") -> OperandAccess:
        """Return the access of a kernel to these rows."""
        return OperandAccess(self.ref, (self.pitch, 0), mode, span=self.pitch)

    def uniforms(self, side: str) -> dict[str, int]:
        """Return the uniforms by which a shader finds the parts."""
        return {
            f"{side}_pitch": self.pitch,
            f"{side}_step": self.step,
            f"{side}_re": self.re or 0,
            f"{side}_im": self.im or 0,
        }


def block_row_layout(ref: BufferRef, n: int) -> ComplexRowLayout:
    """Return the layout of rows of n complex values, all real parts before all
    imaginary parts.
    """
    return ComplexRowLayout(ref, 2 * n, 1, 0, n)


@dataclass(slots=True)
class RowPlanBuilder:
    """Builder of a kernel plan over `row_count` rows."""

    row_count: int
    dispatches: list[KernelDispatch] = field(default_factory=list)
    scratch: list[ScratchBuffer] = field(default_factory=list)
    tables: list[npt.NDArray[Any]] = field(default_factory=list)
    _refs_by_name: dict[str, BufferRef] = field(default_factory=dict)

    def scratch_rows(self, n: int, name: str = "") -> ComplexRowLayout:
        """Return scratch rows of n complex values; calls with the same name share one
        buffer.
        """
        key = f"scratch {n} {name}"
        if not name or key not in self._refs_by_name:
            self.scratch.append(ScratchBuffer(self.row_count * 2 * n))
            self._refs_by_name[key] = BufferRef("scratch", len(self.scratch) - 1)
        return block_row_layout(self._refs_by_name[key], n)

    def host_table(
        self, name: str, values: Callable[[], npt.ArrayLike], width: int
    ) -> OperandAccess:
        """Return the access to a host table of `width` numbers, computed once per name
        and read as a whole.
        """
        if name not in self._refs_by_name:
            self.tables.append(np.ascontiguousarray(values(), np.float32))
            self._refs_by_name[name] = BufferRef("table", len(self.tables) - 1)
        return OperandAccess(self._refs_by_name[name], (0, 0), span=width)

    def roots_table(self, n: int) -> OperandAccess:
        """Return the access to the table of the n roots of unity."""
        return self.host_table(
            f"roots {n}", lambda: fft_arithmetic.roots_of_unity(n), 2 * n
        )

    def reused_scratch(self, numel: int) -> OperandAccess:
        """Return scratch of `numel` elements that every chunk of a dispatch
        overwrites.
        """
        self.scratch.append(ScratchBuffer(numel))
        ref = BufferRef("scratch", len(self.scratch) - 1)
        return OperandAccess(ref, (0, 0), "update", span=numel)

    def add_dispatches(
        self,
        shader: str,
        cells: int,
        accesses: tuple[OperandAccess, ...],
        uniforms: Mapping[str, int | float],
        max_rows: int = 0,
        **fields: Any,
    ) -> None:
        """Add dispatches over rows × cells, one invocation per cell unless `grid` says
        otherwise.

        `max_rows` bounds the rows of one call; 0 is all of them.
        """
        fields.setdefault("grid", (("rows", 1), ("cells", 1)))
        step = max_rows or max(1, self.row_count)
        for start in range(0, max(1, self.row_count), step):
            rows = min(step, self.row_count - start)
            self.dispatches.append(
                KernelDispatch(
                    shader,
                    (
                        IterationAxis("rows", rows),
                        IterationAxis("cells", cells, "whole"),
                    ),
                    tuple(
                        replace(a, offset=a.offset + start * a.strides[0])
                        for a in accesses
                    ),
                    uniforms=uniforms,
                    **fields,
                )
            )

    def build(self) -> KernelPlan:
        """Return the kernel plan."""
        return KernelPlan(
            tuple(self.dispatches), tuple(self.scratch), tuple(self.tables)
        )


SmoothTransform = Callable[
    [RowPlanBuilder, int, ComplexRowLayout, ComplexRowLayout, int, float], None
]
"""(builder, n, source, target, output_count, scale): forward transform of rows whose
length has small factors; only the first `output_count` values are written, times
`scale`.
"""


def add_stockham_passes(
    builder: RowPlanBuilder,
    n: int,
    source: ComplexRowLayout,
    target: ComplexRowLayout,
    output_count: int,
    scale: float,
) -> None:
    """Add the self-sorting passes of `fft_pass.wgsl`, alternating between two scratch
    buffers.
    """
    done_length, factors = 1, fft_arithmetic.radices(n, 4)
    table = builder.roots_table(n)
    for pass_index, radix in enumerate(factors):
        is_last = pass_index == len(factors) - 1
        pass_target = (
            target if is_last else builder.scratch_rows(n, "ab"[pass_index % 2])
        )
        builder.add_dispatches(
            "fft_pass",
            n,
            (source.access(), table, pass_target.access("write")),
            {
                **source.uniforms("in"),
                **pass_target.uniforms("out"),
                "done": done_length,
                "keep": output_count if is_last else n,
                "scale": float(scale if is_last else 1.0),
            },
            overrides={
                "RADIX": radix,
                "IN_PARTS": source.part_mask,
                "OUT_PARTS": pass_target.part_mask,
            },
        )
        source, done_length = pass_target, done_length * radix


def add_modulation(
    builder: RowPlanBuilder,
    source: ComplexRowLayout,
    target: ComplexRowLayout,
    factor: OperandAccess,
    sizes: tuple[int, int],
    scale: float = 1.0,
) -> None:
    """Add the dispatch of target[k] = source[k] * factor[k] for k < count, and 0 from
    there up to cells.
    """
    cells, count = sizes
    builder.add_dispatches(
        "fft_modulate",
        cells,
        (source.access(), factor, target.access("write")),
        {
            **source.uniforms("in"),
            **target.uniforms("out"),
            "count": count,
            "half": factor.span // 2,
            "scale": float(scale),
        },
        overrides={"IN_PARTS": source.part_mask, "OUT_PARTS": target.part_mask},
    )


def with_bluestein(smooth_transform: SmoothTransform) -> SmoothTransform:
    """Extend a transform of lengths with small factors to rows of any length.

    A prime factor above MAX_PRIME goes by Bluestein: a convolution with a chirp, which
    is two transforms of a smooth length.
    """

    def transform(
        builder: RowPlanBuilder,
        n: int,
        source: ComplexRowLayout,
        target: ComplexRowLayout,
        output_count: int,
        scale: float,
    ) -> None:
        if fft_arithmetic.is_smooth(n):
            smooth_transform(builder, n, source, target, output_count, scale)
        else:
            add_bluestein(
                smooth_transform, builder, n, source, target, output_count, scale
            )

    return transform


def add_bluestein(
    smooth_transform: SmoothTransform,
    builder: RowPlanBuilder,
    n: int,
    source: ComplexRowLayout,
    target: ComplexRowLayout,
    output_count: int,
    scale: float,
) -> None:
    """Add the convolution with a chirp, step by step; see `SmoothTransform` for the
    arguments.
    """
    padded_length = fft_arithmetic.bluestein_length(2 * n - 1)
    chirp_table = builder.host_table(
        f"chirp {n}",
        lambda: fft_arithmetic.to_block_layout(fft_arithmetic.chirp(n)),
        2 * n,
    )
    filter_table = builder.host_table(
        f"filter {n}",
        lambda: fft_arithmetic.to_block_layout(
            fft_arithmetic.chirp_filter(n, padded_length)
        ),
        2 * padded_length,
    )
    padded = builder.scratch_rows(padded_length, "padded")
    spectrum = builder.scratch_rows(padded_length, "spectrum")
    add_modulation(builder, source, padded, chirp_table, (padded_length, n))
    smooth_transform(builder, padded_length, padded, spectrum, padded_length, 1.0)
    add_modulation(
        builder, spectrum, padded, filter_table, (padded_length, padded_length)
    )
    smooth_transform(
        builder, padded_length, padded.swap_parts(), spectrum.swap_parts(), n, 1.0
    )
    add_modulation(
        builder, spectrum, target, chirp_table, (output_count, output_count), scale
    )


DEFAULT_TRANSFORM = with_bluestein(add_stockham_passes)
"""Transform of rows of any length by the default shaders."""


def plan_complex_fft(
    rows: int,
    n: int,
    inverse: bool,
    norm: str,
    transform: SmoothTransform = DEFAULT_TRANSFORM,
) -> KernelPlan:
    """Plan the transform of block rows [rows, 2n] → [rows, 2n]."""
    builder = RowPlanBuilder(rows)
    source, target = block_row_layout(IN, n), block_row_layout(OUT, n)
    if inverse:
        source, target = source.swap_parts(), target.swap_parts()
    scale = fft_arithmetic.norm_scale(n, inverse, norm)
    transform(builder, n, source, target, n, scale)
    return builder.build()


def plan_real_fft(
    rows: int, n: int, norm: str, transform: SmoothTransform = DEFAULT_TRANSFORM
) -> KernelPlan:
    """Plan the transform of real rows [rows, n] → block [rows, 2F], F = n // 2 + 1.

    An even row is a complex row of half the length, its spectrum split afterwards.
    """
    builder = RowPlanBuilder(rows)
    bins, scale = n // 2 + 1, fft_arithmetic.norm_scale(n, False, norm)
    target = block_row_layout(OUT, bins)
    if n % 2:
        transform(builder, n, ComplexRowLayout(IN, n), target, bins, scale)
        return builder.build()
    half = n // 2
    packed = builder.scratch_rows(half)
    transform(builder, half, ComplexRowLayout(IN, n, 2, 0, 1), packed, half, scale)
    builder.add_dispatches(
        "fft_real_split",
        bins,
        (packed.access(), _half_spectrum_roots(builder, n), target.access("write")),
        {"half": half},
    )
    return builder.build()


def plan_inverse_real_fft(
    rows: int, n: int, norm: str, transform: SmoothTransform = DEFAULT_TRANSFORM
) -> KernelPlan:
    """Plan the inverse transform of block rows [rows, 2F] → real rows [rows, n]; the
    imaginary parts at both ends are ignored.
    """
    builder = RowPlanBuilder(rows)
    bins, scale = n // 2 + 1, fft_arithmetic.norm_scale(n, True, norm)
    source = block_row_layout(IN, bins)
    if n % 2:
        full = builder.scratch_rows(n)
        builder.add_dispatches(
            "fft_mirror", n, (source.access(), full.access("write")), {"n": n}
        )
        target = ComplexRowLayout(OUT, n).swap_parts()
        transform(builder, n, full.swap_parts(), target, n, scale)
        return builder.build()
    half = n // 2
    packed = builder.scratch_rows(half)
    accesses = (
        source.access(),
        _half_spectrum_roots(builder, n),
        packed.access("write"),
    )
    builder.add_dispatches("fft_real_join", half, accesses, {"half": half})
    target = ComplexRowLayout(OUT, n, 2, 0, 1).swap_parts()
    transform(builder, half, packed.swap_parts(), target, half, scale)
    return builder.build()


def _half_spectrum_roots(builder: RowPlanBuilder, n: int) -> OperandAccess:
    """Return the access to the roots of unity of the first n // 2 + 1 bins."""
    bins = n // 2 + 1
    return builder.host_table(
        f"half turn {n}", lambda: fft_arithmetic.roots_of_unity(n, bins), 2 * bins
    )


def transform_length(op: str, width: int, attrs: Mapping[str, Any]) -> int:
    """Return the length of the transform that fft, rfft or irfft computes for rows of
    `width`.
    """
    return int(attrs["n"] if op == "irfft" else width // 2 if op == "fft" else width)


def plan_fft(
    op: str,
    shape: Shape,
    attrs: Mapping[str, Any],
    transform: SmoothTransform = DEFAULT_TRANSFORM,
) -> KernelPlan:
    """Plan fft, rfft or irfft along the last axis."""
    rows, n = numel(shape[:-1]), transform_length(op, shape[-1], attrs)
    if op == "fft":
        return plan_complex_fft(rows, n, attrs["inverse"], attrs["norm"], transform)
    plan_real = plan_real_fft if op == "rfft" else plan_inverse_real_fft
    return plan_real(rows, n, attrs["norm"], transform)


def smooth_lengths(n: int, real: bool) -> tuple[int, ...]:
    """Return the lengths of the `SmoothTransform` calls in a transform of length n."""
    inner = n // 2 if real and n % 2 == 0 else n
    return (
        (inner,)
        if fft_arithmetic.is_smooth(inner)
        else (fft_arithmetic.bluestein_length(2 * inner - 1),)
    )
