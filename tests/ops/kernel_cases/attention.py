"""Attention: masks, layouts, head sizes, grouped heads, scores that are no numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import assume

from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array
from tests.ops.kernel_cases.case import KernelCase, kernel_case
from tests.unit.ops.attention_shapes import attention_shapes

ON_GPU, COMPILED = "attention, one kernel", "attention, compiled"


def attention_case(
    why: str,
    q: Shape,
    k: Shape,
    *mask: Shape | Drawn,
    v: Shape | None = None,
    dtype: str = "f32",
    edit: Callable[[list[Array]], None] | None = None,
    kernels: str | tuple[str, ...] = (ON_GPU,),
    is_split: bool = False,
    **attrs: Any,
) -> KernelCase:
    """Return a case; number and size of heads come from q where they are not given."""
    operands = [Drawn(shape, dtype) for shape in (q, k, k if v is None else v)]
    sizes = {"num_heads": q[1], "head_dim": q[-1], **attrs}
    return kernel_case(
        "attention",
        why,
        *operands,
        *mask,
        edit=edit,
        kernels=kernels,
        is_split=is_split,
        **sizes,
    )


def special_bias(arrays: list[Array], special: float) -> None:
    """A special value alone, in all of a row, and a row of which a part is masked."""
    mask = arrays[3]
    mask[...] = 0
    mask[3, 5], mask[4], mask[6, 30:] = special, special, -np.inf


def odd_queries_and_keys(arrays: list[Array]) -> None:
    arrays[0][0, 1, 65, 3] = arrays[1][0, 0, 69, 2] = np.nan


def odd_values(arrays: list[Array]) -> None:
    arrays[2][0, 0, 69, 1], arrays[2][0, 1, 0, 7] = np.nan, np.inf


def rows_of_minus_infinity(arrays: list[Array]) -> None:
    arrays[3][0, 0, 3], arrays[3][0, 1, 4, :40] = -np.inf, -np.inf


def odd_bias(arrays: list[Array]) -> None:
    arrays[3][0, 0, 5, 69], arrays[3][0, 1, 6, 0] = np.inf, np.nan


def odd_query(value: float) -> Callable[[list[Array]], None]:
    def edit(arrays: list[Array]) -> None:
        arrays[0][0, 0, 3, 5] = value

    return edit


def each_third_key_masked(arrays: list[Array]) -> None:
    arrays[3][...] = np.arange(arrays[3].shape[-1]) % 3 > 0


def all_masked(arrays: list[Array]) -> None:
    arrays[3][...] = 0


Q, K, SQUARE = (2, 6, 67, 16), (2, 3, 101, 16), (1, 4, 40, 16)
BIAS = Drawn((1, 2, 66, 70), low=-1, high=1)
FLAT_HEADS = {"num_heads": 6, "head_dim": 16}
CASES = [
    attention_case("no mask, tails of both lengths", Q, K, kernels=(ON_GPU, COMPILED)),
    attention_case("causal", Q, K, mask_kind="causal"),
    attention_case("a window", Q, K, mask_kind="sliding_window", window=7),
    attention_case("booleans", Q, K, Drawn((2, 101), "bool"), mask_kind="custom"),
    attention_case(
        "all keys masked",
        *(Q, K, Drawn((1, 101), "i32")),
        edit=all_masked,
        mask_kind="custom",
    ),
    attention_case(
        "a mask of floats", Q, K, Drawn((1, 101), low=-1, high=1), mask_kind="custom"
    ),
    attention_case(
        "a bias and a cap",
        *(Q, K, Drawn((67, 101), low=-1, high=1)),
        mask_kind="bias",
        softcap=1.5,
    ),
    attention_case(
        "a bias a row", Q, K, Drawn((6, 67, 1), low=-1, high=1), mask_kind="bias"
    ),
    attention_case(
        "queries before the first key",
        *((1, 2, 67, 8), (1, 2, 30, 8)),
        mask_kind="causal",
    ),
    attention_case(
        "rows of heads, and a scale",
        *((1, 67, 6, 16), (1, 70, 3, 16)),
        kernels=(ON_GPU, COMPILED),
        score_scale=2.0,
        **FLAT_HEADS,
    ),
    attention_case(
        "flat heads, values of another size",
        *((2, 67, 96), (2, 70, 48)),
        v=(2, 70, 24),
        **FLAT_HEADS,
    ),
    *(
        attention_case(f"heads of {size}", (1, 2, 66, size), (1, 2, 41, size))
        for size in (68, 132)
    ),
    attention_case(
        "halves, scores up to a thousand",
        *(Q, K),
        dtype="f16",
        mask_kind="causal",
        score_scale=8.0,
    ),
    *(
        attention_case(
            f"{why}, with a bias",
            *((1, 2, 66, 8), (1, 2, 70, 8), BIAS),
            edit=edit,
            mask_kind="bias",
        )
        for why, edit in (
            ("a query and a key that are no numbers", odd_queries_and_keys),
            ("values that are not finite", odd_values),
            ("rows of -infinity", rows_of_minus_infinity),
            ("a bias that is not finite", odd_bias),
        )
    ),
    *(
        attention_case(
            f"{why}, causal",
            *((1, 2, 66, 8), (1, 2, 70, 8)),
            edit=edit,
            mask_kind="causal",
        )
        for why, edit in (
            ("a query and a key that are no numbers", odd_queries_and_keys),
            ("values that are not finite", odd_values),
        )
    ),
    *(
        attention_case(
            f"{value} in a query",
            *((1, 2, 20, 16), (1, 2, 20, 16)),
            edit=odd_query(value),
            kernels=COMPILED,
        )
        for value in (np.nan, np.inf, -np.inf)
    ),
    *(
        attention_case(
            f"a bias of rank {len(shape)}",
            *((2, 5, 70, 24), (2, 5, 37, 24), shape),
            kernels=(),
            mask_kind="bias",
            score_scale=0.3,
        )
        for shape in (
            *((), (1,), (37,), (70, 37), (1, 37), (2, 1, 1, 37)),
            *((2, 5, 70, 37), (70, 1)),
        )
    ),
    *(
        attention_case(
            f"{value} in a bias",
            *((1, 2, 70, size), (1, 2, 37, size), (70, 37)),
            edit=lambda arrays, value=value: special_bias(arrays, value),
            kernels=(),
            mask_kind="bias",
        )
        for value in (np.inf, -np.inf, np.nan, 3e38, -3e38)
        for size in (16, 24)
    ),
    attention_case(
        "many queries of one head",
        *((1, 1, 500, 32), (1, 1, 500, 32)),
        kernels=COMPILED,
    ),
    attention_case(
        "many heads",
        *((2, 12, 50, 32), (2, 12, 50, 32)),
        kernels=COMPILED,
    ),
    attention_case(
        "vectors left over",
        *((1, 3, 37, 80), (1, 3, 37, 80)),
        kernels=COMPILED,
        score_scale=0.3,
    ),
    attention_case("a model's", (1, 12, 128, 64), (1, 12, 128, 64), kernels=COMPILED),
    attention_case("shared keys", (2, 4, 33, 16), (2, 2, 65, 16), kernels=COMPILED),
    attention_case(
        "flat heads",
        *((2, 50, 64), (2, 70, 64)),
        kernels=COMPILED,
        num_heads=4,
        head_dim=16,
    ),
    attention_case("square", SQUARE, SQUARE, score_scale=0.5, kernels=COMPILED),
    attention_case("square", SQUARE, SQUARE, mask_kind="causal", kernels=COMPILED),
    attention_case(
        "longer keys, and a cap",
        *(SQUARE, (1, 4, 52, 16)),
        kernels=COMPILED,
        mask_kind="causal",
        softcap=3.0,
    ),
    attention_case(
        "square",
        *(SQUARE, SQUARE),
        kernels=COMPILED,
        mask_kind="sliding_window",
        window=5,
    ),
    attention_case(
        "each third key masked",
        *(SQUARE, SQUARE, (1, 40)),
        edit=each_third_key_masked,
        kernels=COMPILED,
        mask_kind="custom",
    ),
    attention_case(
        "square", SQUARE, SQUARE, (1, 1, 40, 40), mask_kind="bias", kernels=COMPILED
    ),
    attention_case("a cap", SQUARE, SQUARE, softcap=2.0, kernels=COMPILED),
    attention_case(
        "heads and queries in several pieces",
        *((9, 2, 140, 16), (9, 1, 100, 16)),
        mask_kind="causal",
        is_split=True,
    ),
    attention_case(
        "wide heads, and a cap",
        *((1, 2, 70, 72), (1, 2, 70, 72)),
        mask_kind="causal",
        softcap=2.0,
    ),
]


@st.composite
def drawn_cases(draw: st.DrawFn) -> KernelCase:
    """Draw shared keys, odd lengths and values of another size, in any layout."""
    group, key_heads = draw(st.sampled_from([1, 2])), draw(st.integers(1, 5))
    sizes = st.one_of(st.sampled_from([16, 48, 64]), st.integers(1, 40))
    value_sizes = st.one_of(st.sampled_from([16, 80]), st.integers(1, 40))
    size, value_size = draw(sizes), draw(value_sizes)
    shapes = attention_shapes(
        draw(st.sampled_from(["heads", "rows", "flat"])),
        draw(st.integers(1, 3)),
        group * key_heads,
        key_heads,
        draw(st.integers(1, 150)),
        draw(st.integers(4, 150)),
        size,
        value_size,
    )
    assume(shapes is not None)
    assert shapes is not None
    return attention_case(
        "any size",
        *shapes[:2],
        v=shapes[2],
        kernels=(),
        num_heads=group * key_heads,
        head_dim=size,
    )
