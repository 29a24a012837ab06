"""Elementwise ops (arithmetic, comparison, where, cast): references, shape rules,
refusals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.core.errors import DTypeError, ShapeError
from tests.unit.ops.single_op_runner import build_op, run

NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
I32_MIN, I32_MAX, U32_MAX = -(1 << 31), (1 << 31) - 1, (1 << 32) - 1


@given(shapes=hnp.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_dims=4))
@pytest.mark.parametrize("name", sorted(NUMPY))
def test_every_pair_broadcasts_as_in_numpy(name: str, shapes: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-3, 4, s).astype(np.float32) for s in shapes.input_shapes)
    got = run(name, x, y)
    assert got.shape == shapes.result_shape
    np.testing.assert_array_equal(got, NUMPY[name](x, y))


@given(
    a=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
    b=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
)
def test_shapes_numpy_refuses_are_refused(
    a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    try:
        want = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ShapeError, match="cannot broadcast"):
            build_op("add", a, b)
    else:
        assert build_op("add", a, b).shape == want


@given(
    c=hnp.arrays(bool, (3, 1)),
    x=hnp.arrays(np.float32, (4,), elements=st.floats(-9, 9, width=32)),
)
def test_where_broadcasts_its_condition_too(c: Any, x: Any) -> None:
    y = np.float32(-1.0)
    np.testing.assert_array_equal(run("where", c, x, y), np.where(c, x, y))


@pytest.mark.parametrize(
    ("x", "y", "want"),
    [
        (7, 2, 3),
        (-7, 2, -3),
        (7, -2, -3),
        (-7, -2, 3),
        (-6, 3, -2),
        (5, 0, 0),
        (-5, 0, 0),
        (0, 0, 0),
        (I32_MIN, -1, I32_MIN),
    ],
)
def test_integer_division_truncates_and_zero_gives_zero(
    x: int, y: int, want: int
) -> None:
    assert run("div", np.int32([x]), np.int32([y])).tolist() == [want]


def test_unsigned_division_reaches_past_the_signed_range() -> None:
    got = run("div", np.uint32([4_000_000_000, 9]), np.uint32([3, 0]))
    assert got.tolist() == [1_333_333_333, 0]


def test_integers_wrap_in_their_own_dtype() -> None:
    top = np.int32([I32_MAX])
    assert run("add", top, np.int32([1])).tolist() == [I32_MIN]
    assert run("mul", top, np.int32([2])).tolist() == [-2]
    assert run("sub", np.uint32([0]), np.uint32([1])).tolist() == [(1 << 32) - 1]


def test_pow_of_a_negative_base_takes_the_sign_of_an_odd_power() -> None:
    got = run("pow", np.float32([-2, -2, -2, 0, 0]), np.float32([3, 2, 0, 0, 2]))
    assert got.tolist() == [-8, 4, 1, 1, 0]


@pytest.mark.parametrize(
    ("to", "values", "want"),
    [
        (
            "i32",
            [1.9, -1.9, 3e9, -3e9, np.inf, -np.inf, np.nan],
            [1, -1, I32_MAX, I32_MIN, I32_MAX, I32_MIN, 0],
        ),
        (
            "u32",
            [1.9, -1.9, 3e9, 5e9, np.inf, -np.inf, np.nan],
            [1, 0, 3_000_000_000, U32_MAX, U32_MAX, 0, 0],
        ),
        ("bool", [0.0, -0.0, 0.5, -3.0], [False, False, True, True]),
    ],
)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_cast_from_float_truncates_and_saturates(
    source: Any, to: str, values: list[float], want: list[Any]
) -> None:
    assert run("cast", np.array(values, source), to=to).tolist() == want


def test_cast_from_half_reaches_the_integer_limits() -> None:
    got = run("cast", np.float16([np.inf, -np.inf, np.nan, -2.5]), to="i32")
    assert got.tolist() == [I32_MAX, I32_MIN, 0, -2]


def test_cast_between_integers_wraps() -> None:
    assert run("cast", np.int32([-1]), to="u32").tolist() == [(1 << 32) - 1]
    assert run("cast", np.uint32([1 << 31]), to="i32").tolist() == [I32_MIN]
    assert run("cast", np.bool_([True, False]), to="f32").tolist() == [1.0, 0.0]


def test_bools_can_be_compared() -> None:
    assert run("eq", np.bool_([1, 0]), np.bool_([1, 1])).tolist() == [True, False]


@pytest.mark.parametrize("name", ["add", "div", "eq", "lt", "maximum"])
def test_two_dtypes_are_refused_with_both_named(name: str) -> None:
    with pytest.raises(DTypeError) as raised:
        build_op(name, (2,), ((2,), "i32"))
    assert str(raised.value) == (
        f"{name} of [2] f32, [2] i32: the operands are f32 and i32; all operands "
        "must have the same dtype; dtypes are not promoted; cast the operands to one "
        "dtype"
    )


NO_BOOLS = "operand 0 is bool; expected f16, i32"
NO_CONDITION = (
    "the condition is f32; the condition must be bool; compare the condition with a "
    r"value, for example g.ne\(condition, 0\)$"
)


@pytest.mark.parametrize(
    ("name", "dtypes", "message"),
    [
        *((n, ["bool"] * 2, NO_BOOLS) for n in ("add", "sub", "mul", "div")),
        *((n, ["bool"] * 2, NO_BOOLS) for n in ("maximum", "minimum")),
        ("lt", ["bool"] * 2, "operand 0 is bool"),
        ("pow", ["i32"] * 2, "accepts only floats"),
        ("where", ["f32"] * 3, NO_CONDITION),
    ],
)
def test_unsupported_dtypes_are_refused(
    name: str, dtypes: list[str], message: str
) -> None:
    with pytest.raises(DTypeError, match=message):
        build_op(name, *(((2,), dtype) for dtype in dtypes))


def test_cast_wants_a_known_dtype() -> None:
    with pytest.raises(DTypeError, match=r"attribute to='f8'.* NumPy's 'f8' is 'f64'"):
        build_op("cast", (2,), to="f8")


def test_float16_and_float64_keep_their_dtype() -> None:
    for dtype in (np.float16, np.float64):
        assert run("mul", np.ones(3, dtype), np.ones(3, dtype)).dtype == dtype
