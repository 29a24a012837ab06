"""Row by row: softmax, norms, reductions, searches. Short, long and odd rows, NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np

from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array
from tests.ops.kernel_cases.case import KernelCase, kernel_case

INF, NAN = np.inf, np.nan
NORMS = ("softmax", "layer_norm", "rms_norm")
REDUCTIONS = ("sum", "mean", "max", "min", "prod")
Edit = Callable[[list[Array]], None]

# --- softmax and norms ---------------------------------------------------------------

# A group of lanes and a tail of it, groups that are not all there, a workgroup a row,
# as long as a workgroup holds, more rows than a grid's side.
REGISTER_SHAPES = [(1, 64), (3, 68), (33, 132), (5, 1024), (2, 1020), (2, 8192)]
LONG_REGISTER_SHAPES = [(66_000, 64), (1, 8188)]
COMPILED_SHAPES: list[Shape] = [
    *((3000, 1), (400, 7), (130, 16), (70, 31), (2, 1023), (5, 3, 200), (40_000,)),
    *((37, 203), (64, 64), (3, 5), (9, 699), (1, 4)),
]


def rows_case(
    op: str,
    why: str,
    shape: Shape,
    edit: Edit | None = None,
    kernels: str | tuple[str, ...] = (),
    dtype: str = "f32",
    high: float = 2.0,
    around: float = 0.0,
    axis: int = -1,
    **options: Any,
) -> KernelCase:
    """Return a case of softmax, or of a norm with its scale and bias."""
    x = Drawn(shape, dtype, around - high, around + high)
    parameters = [Drawn(shape[axis : axis + 1 or None], dtype)] * 2
    return kernel_case(
        op,
        why,
        *([x] if op == "softmax" else [x, *parameters]),
        edit=edit,
        kernels=kernels,
        axis=axis,
        **options,
    )


def odd_value(value: float, row: int, column: int) -> Edit:
    def edit(arrays: list[Array]) -> None:
        x = arrays[0]
        x.reshape(-1, x.shape[-1])[row, column] = value

    return edit


def odd_rows(arrays: list[Array]) -> None:
    """NaN, infinity and -infinity, each in a row of its own."""
    x = arrays[0]
    x[1, 131], x[3, 0], x[5, 7] = NAN, INF, -INF


def row_of_minus_infinity(arrays: list[Array]) -> None:
    arrays[0][-1] = -INF


def reversed_rows(arrays: list[Array]) -> None:
    arrays[0] = arrays[0][::-1]


def each_other_column(arrays: list[Array]) -> None:
    arrays[0] = arrays[0][:, ::2]
    arrays[1:] = [array[: arrays[0].shape[1]] for array in arrays[1:]]


def fortran_order(arrays: list[Array]) -> None:
    arrays[0] = np.asfortranarray(arrays[0])


def from_minus_200_to_300(arrays: list[Array]) -> None:
    arrays[0][...] = np.linspace(-200, 300, arrays[0].size).reshape(arrays[0].shape)


def norm_cases(op: str) -> list[KernelCase]:
    """Return the cases of softmax or of a norm."""
    in_registers = f"{op}, in registers"
    compiled = (f"{op}, as a row kernel",)
    high = 80 if op == "softmax" else 2
    return [
        *(
            rows_case(op, "tails of registers", shape, None, in_registers, high=high)
            for shape in REGISTER_SHAPES
        ),
        *(
            rows_case(
                op,
                "many rows, long rows",
                *(shape, None, in_registers),
                high=high,
                is_full=op != "softmax",
            )
            for shape in LONG_REGISTER_SHAPES
        ),
        rows_case(op, "halves", (3, 132), None, in_registers, "f16"),
        rows_case(op, "values that are not finite", (9, 132), odd_rows, in_registers),
        *(
            rows_case(
                op, "any length", shape, kernels=compiled if shape[-1] >= 4 else ()
            )
            for shape in COMPILED_SHAPES
        ),
        rows_case(op, "no rows", (0, 20)),
        *(
            rows_case(
                op,
                f"about {around} ± {size}",
                shape,
                None,
                compiled,
                "f32",
                size,
                around,
                is_exclusive=around != 0,
            )
            for shape in ((130, 16), (70, 31), (5, 3, 200))
            for around in (0.0, 200.0, -1e4)
            for size in (1e-3, 1.0, 80.0)
        ),
        *(
            rows_case(
                op,
                f"{value} at {column}",
                (4, 19),
                odd_value(value, 2, column),
                compiled,
            )
            for value in (NAN, INF, -INF)
            for column in (0, 5, 18)
        ),
        *(
            rows_case(
                op,
                f"{value} in the middle",
                shape,
                odd_value(value, 0, shape[-1] // 2),
                compiled,
            )
            for value in (NAN, INF, -INF)
            for shape in ((400, 7), (2, 1023))
        ),
        rows_case(op, "rows in reverse", (40, 301), reversed_rows, compiled),
        rows_case(op, "each other column", (40, 301), each_other_column, compiled),
        rows_case(
            op, "long rows", (3, 300_001), kernels=compiled, is_full=op != "softmax"
        ),
        rows_case(op, "columns follow each other", (64, 64), fortran_order, compiled),
        *(
            rows_case(op, f"along axis {axis}", shape, axis=axis)
            for shape, axis in (((64, 64), 0), ((33, 90, 100), 0), ((90, 100, 33), 1))
        ),
    ]


# --- reductions ----------------------------------------------------------------------

# One load and four, odd lengths, a line in parts with a short last one, parts of parts,
# more lines than a grid's side.
ROW_SHAPES = [(1, 32), (3, 37), (7, 128), (65_537, 33), (5, 1009), (2, 16_388)]
ROW_SHAPES += [(1, 40_001), (512, 16_388), (1, 3_000_000)]
MOST_ROW_SHAPES = ROW_SHAPES[:7:2]
SEVERAL_TYPES = [(36, "sum"), (36, "min"), (77, "max"), (17_000, "sum")]
SEVERAL_TYPES += [(17_000, "min")]
"""Lengths and ops that every tier tries on other types than float32."""
COMPILED_AXES: list[tuple[Shape, Shape]] = [
    *(((300, 16), (1,)), ((40, 203), (1,)), ((2, 5000), (1,)), ((8, 16), (0,))),
    *(((203, 45), (0,)), ((3, 33, 70), (1,)), ((3, 33, 70), (1, 2))),
    *(((9, 5001), (0,)), ((4097,), (0,)), ((1 << 18,), (0,)), ((3, 1 << 16), (1,))),
    *(((70, 4096), (0,)), ((61, 83), (1,)), ((61, 83), (0,)), ((600, 600), (1,))),
]
OTHER_AXES: list[tuple[Shape, Shape]] = [
    *(((128, 128), (0,)), ((128, 128), (1,)), ((4, 5000), (0,)), ((5000, 4), (1,))),
    *(((5000, 4), (0,)), ((3, 5), (0,)), ((3, 5), (1,))),
]
FAST_SUM_AXES: list[tuple[Shape, Shape]] = [
    *(((300, 700), (1,)), ((700, 300), (0,)), ((700, 300), (0, 1))),
    *(((5, 600, 64), (1,)), ((3, 1, 70_001), (2,)), ((90_000,), (0,))),
]


def near_one(op: str, shape: Shape) -> Drawn:
    """Return numbers whose product stays in range and whose sum does not cancel."""
    if op == "prod":
        spread = 0.05 if np.prod(shape) < 1e6 else 1e-4
        return Drawn(shape, low=1 - spread, high=1 + spread)
    return Drawn(shape, low=-1.5, high=2.5)


def odd_lines(arrays: list[Array]) -> None:
    """NaN first, last, in a tail; infinities of one sign and of both."""
    x = arrays[0]
    n = x.shape[1]
    x[...] = 1
    x[0, 0] = x[1, n - 1] = x[2, n // 2 + 1] = NAN
    x[3, 5], x[4, 7], x[4, n - 2] = INF, INF, -INF


def sums_out_of_range(arrays: list[Array]) -> None:
    """Runs that overflow float32 and cancel."""
    arrays[0][...] = 1e37
    arrays[0][::2] *= -1


def one_infinity(arrays: list[Array]) -> None:
    sums_out_of_range(arrays)
    arrays[0][0, 0] = INF


def reduction_cases(op: str) -> list[KernelCase]:
    """Return the cases of a reduction."""
    on_gpu, compiled = f"{op}, many lanes", f"{op}, compiled"
    shapes = ROW_SHAPES if op == "sum" else ROW_SHAPES[:7]
    other_ops = [] if op == "mean" else [on_gpu]
    cases = [
        *(
            kernel_case(
                op,
                "rows",
                near_one(op, shape),
                kernels=tuple(other_ops),
                is_full=op != "sum" and shape not in MOST_ROW_SHAPES,
                axes=(1,),
                keep_dim=False,
            )
            for shape in shapes
        ),
        *(
            kernel_case(
                op,
                "all elements",
                near_one(op, (rows, 2, 36)),
                kernels=tuple(other_ops),
                axes=(0, 1, 2),
                keep_dim=True,
            )
            for rows in (1, 3, 5, 7)
            if op != "prod"
        ),
        *(
            kernel_case(
                op,
                "any axes",
                near_one(op, shape),
                kernels=compiled,
                axes=axes,
                keep_dim=keep_dim,
            )
            for shape, axes in COMPILED_AXES
            for keep_dim in ([False, True] if len(shape) < 3 else [True])
        ),
        *(
            kernel_case(
                op,
                f"{value} in the middle",
                near_one(op, shape),
                edit=odd_value(value, row, 5),
                kernels=compiled,
                axes=axes,
                keep_dim=False,
            )
            for value in (NAN, INF, -INF)
            for shape, axes, row in (
                ((40, 203), (1,), 31),
                ((203, 45), (0,), 97),
                ((4097,), (0,), 0),
            )
        ),
        *(
            kernel_case(
                op,
                "columns follow each other",
                near_one(op, shape),
                edit=fortran_order,
                axes=axes,
                keep_dim=False,
            )
            for shape, axes in OTHER_AXES
        ),
        *(
            kernel_case(
                op,
                f"odd lines of {n}",
                (6, n),
                edit=odd_lines,
                kernels=tuple(other_ops),
                axes=(1,),
                keep_dim=False,
            )
            for n in (40, 41, 40_000)
        ),
        *(
            kernel_case(
                op,
                f"{dtype} of {n}",
                Drawn((3, n), dtype, -high, high, whole=True),
                kernels=tuple(other_ops),
                is_full=(n, op) not in SEVERAL_TYPES,
                axes=(1,),
                keep_dim=False,
            )
            for dtype, high in (("i32", 1e9), ("u32", 1e9), ("f16", 4))
            for n in (36, 77, 17_000)
            if op in ("sum", "max", "min")
        ),
    ]
    if op in ("sum", "mean"):
        cases += [
            kernel_case(
                op,
                "short runs",
                Drawn(shape, low=-1, high=3),
                kernels=f"{op}, short runs",
                axes=axes,
                keep_dim=keep_dim,
            )
            for shape, axes in FAST_SUM_AXES
            for keep_dim in (False, True)
        ]
        cases += [
            kernel_case(
                op,
                why,
                (200, 600),
                edit=edit,
                kernels=f"{op}, short runs",
                axes=axes,
                keep_dim=False,
            )
            for why, edit, axes in (
                ("out of range", lambda arrays: arrays[0].fill(1e37), (1,)),
                ("cancels out of range", sums_out_of_range, (0,)),
                ("infinity and sums out of range", one_infinity, (0,)),
            )
            if op == "mean" or axes == (0,)
        ]
    return cases


# --- searches ------------------------------------------------------------------------

# rows, length, k: a full and a short chunk, one list of lists, more lists than fit one.
TOPK_SIZES = [(3, 32, 1), (2, 33, 33), (5, 129, 128), (2, 4097, 16), (1, 70_001, 100)]
TOPK_SIZES += [(70_000, 33, 2), (1, 1_100_000, 16)]
ON_GPU = "topk, workgroup a row"


def special_ranks(arrays: list[Array]) -> None:
    values = [NAN, -INF, 0.0, -0.0, INF, NAN, 1e-45, -1e-45, 3.4e38]
    arrays[0][...] = np.resize(np.array(values, np.float32), arrays[0].shape)


def few_numbers(arrays: list[Array]) -> None:
    """NaN but for two."""
    arrays[0][...] = NAN
    arrays[0][0, [17, 4999]] = -INF, 2.0


def special_values_in_each_other_row(arrays: list[Array]) -> None:
    x, rng = arrays[0], np.random.default_rng(5)
    x[1::2] = rng.choice([-INF, -1.0, -0.0, 0.0, 2.0, INF, NAN], x[1::2].shape)


TOPK_CASES = [
    *(
        kernel_case(
            "topk",
            "ties" if has_ties else "distinct values",
            Drawn((rows, n), low=-high, high=high, whole=has_ties),
            kernels=ON_GPU,
            is_full=(rows, n, k)
            in ({(2, 33, 33), (1, 70_001, 100)} if has_ties else TOPK_SIZES[1::2]),
            k=k,
        )
        for has_ties, high in ((False, 1e6), (True, 3.0))
        for rows, n, k in TOPK_SIZES
    ),
    *(
        kernel_case(
            "topk", "special values", (2, n), edit=special_ranks, kernels=ON_GPU, k=k
        )
        for n in (40, 5000)
        for k in (9, 40)
    ),
    kernel_case(
        "topk",
        "fewer numbers than wanted",
        (1, 5000),
        edit=few_numbers,
        kernels=ON_GPU,
        k=20,
    ),
    *(
        kernel_case(
            op,
            "NaN and infinity beside other rows",
            Drawn((70, 40), dtype),
            edit=special_values_in_each_other_row,
            kernels=f"{op}, partition",
            k=k,
        )
        for op in ("topk", "power_peaks")
        for dtype in ("f32", "f64")
        for k in (1, 7, 40)
    ),
]
SPLIT_CASES = [
    kernel_case(
        "topk", "rows in pieces", (700, 128), kernels=ON_GPU, k=5, is_split=True
    ),
    kernel_case(
        "topk", "a row in pieces", (2, 50_001), kernels=ON_GPU, k=5, is_split=True
    ),
    *(
        kernel_case(
            op,
            "rows in pieces",
            Drawn(shape, low=-1.5, high=2.5),
            kernels=f"{op}, many lanes",
            axes=(1,),
            keep_dim=False,
            is_split=True,
        )
        for op, shape in (("sum", (999, 132)), ("max", (1, 123_457)))
    ),
    *(
        rows_case(
            op, "rows in pieces", shape, None, f"{op}, in registers", is_split=True
        )
        for op, shape in (("softmax", (999, 132)), ("layer_norm", (40, 4096)))
    ),
]
CASES = [
    *(case for op in NORMS for case in norm_cases(op)),
    rows_case("softmax", "rows of -infinity", (9, 132), row_of_minus_infinity),
    rows_case("softmax", "a short row of -infinity", (2, 8), row_of_minus_infinity),
    rows_case("softmax", "from -200 to 300", (4, 31), from_minus_200_to_300),
    *(case for op in REDUCTIONS for case in reduction_cases(op)),
    *TOPK_CASES,
    *SPLIT_CASES,
]


@st.composite
def drawn_norms(draw: st.DrawFn) -> KernelCase:
    """Draw rows of any length and number, with or without an odd value."""
    rows, n = draw(st.integers(0, 9)), draw(st.integers(4, 700))
    value = draw(st.sampled_from([None, NAN, INF, -INF]))
    at = rows // 2, draw(st.integers(0, n - 1))
    return rows_case(
        draw(st.sampled_from(NORMS)),
        "any length",
        (rows, n),
        edit=None if value is None or not rows else odd_value(value, *at),
        high=3.0,
        around=1.0,
    )


@st.composite
def drawn_searches(draw: st.DrawFn) -> KernelCase:
    """Draw a search among ties in rows of any length."""
    rows, n = draw(st.integers(1, 4)), draw(st.integers(32, 9000))
    return kernel_case(
        "topk",
        "any length",
        Drawn((rows, n), low=-50, high=50, whole=True),
        k=min(draw(st.integers(1, 128)), n),
    )
