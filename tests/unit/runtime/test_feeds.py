"""What a caller may hand in, and what is refused before any device is asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.errors import DTypeError, InputError, ShapeError, UnknownName
from rlxweb.ir.graph import Graph
from rlxweb.runtime.feeds import as_input, check_feeds
from tests.agreement import Array, strided


def graph_of(shape: tuple[int, ...] = (2, 3), dtype: str = "f32") -> Graph:
    graph = Graph("net")
    graph.input("signal", shape, dtype)
    graph.input("scale", (), "f32")
    return graph


def feed(value: object, shape: tuple[int, ...] = (2, 3), dtype: str = "f32") -> Array:
    """One value as input 'signal'."""
    graph = graph_of(shape, dtype)
    return as_input("run 'net'", graph.named("input")["signal"], value)


ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


LAID = {
    "plain": ARRAY,
    "byte-swapped": ARRAY.astype(">f4"),
    "column-major": np.asfortranarray(ARRAY),
    "strided": strided(ARRAY, 0),
    "reversed": strided(ARRAY, 1),
    "list": ARRAY.tolist(),
    "tuple": tuple(map(tuple, ARRAY.tolist())),
    "list of ints": [[0, 1, 2], [3, 4, 5]],
    "buffer": memoryview(ARRAY),
}


@pytest.mark.parametrize("how", LAID)
def test_equal_values_are_equal_however_they_lie(how: str) -> None:
    """Values count in any strides, byte order and container; the result is native."""
    made = feed(LAID[how])
    assert made.dtype == np.float32
    assert made.dtype.isnative
    np.testing.assert_array_equal(made, ARRAY)


def test_read_only_arrays_are_taken() -> None:
    """A run only reads."""
    locked = ARRAY.copy()
    locked.setflags(write=False)
    np.testing.assert_array_equal(feed(locked), ARRAY)


def test_things_with_an_array_inside_are_taken() -> None:
    """`__array__` and `__dlpack__` are enough."""

    class Wrapped:
        def __array__(self, dtype: object = None, copy: object = None) -> Array:
            return ARRAY

    class Packed:
        def __dlpack__(self, **options: object) -> object:
            return ARRAY.__dlpack__(**options)  # type: ignore[arg-type]

        def __dlpack_device__(self) -> tuple[int, int]:
            return ARRAY.__dlpack_device__()

    np.testing.assert_array_equal(feed(Wrapped()), ARRAY)
    np.testing.assert_array_equal(feed(Packed()), ARRAY)


@given(
    st.sampled_from(["f32", "i32", "u32", "bool", "f16", "f64", "i64"]),
    hnp.arrays(
        st.sampled_from(
            ["<f4", ">f4", "f2", "f8", "i4", ">i4", "u4", "?", "i8", "i1", "c8", "O"]
        ),
        st.sampled_from([(2, 3), (3, 2), (6,), (), (0, 3)]),
        elements=st.just(1),
    ),
)
def test_an_array_is_taken_as_it_is_or_refused(dtype: str, array: Array) -> None:
    """An array is never narrowed, widened or reshaped: it is taken or refused."""
    want = graph_of(dtype=dtype).named("input")["signal"].type.dtype.numpy
    if array.dtype.newbyteorder("=") != want:
        with pytest.raises(DTypeError):
            feed(array, dtype=dtype)
    elif array.shape != (2, 3):
        with pytest.raises(ShapeError):
            feed(array, dtype=dtype)
    else:
        np.testing.assert_array_equal(feed(array, dtype=dtype), array)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (ARRAY.astype(np.float64), DTypeError, "is float64; .* declares f32; cast it"),
        (ARRAY.astype(complex), DTypeError, "complex128"),
        (ARRAY[0], ShapeError, r"is \[3\]; the graph declares \[2, 3\]"),
        (ARRAY.T, ShapeError, r"is \[3, 2\]"),
        ([[1, 2, 3], [4, 5]], DTypeError, "row 0 has 3 values, row 1 has 2"),
        (None, DTypeError, "None was given"),
        ("abc", DTypeError, "a str was given"),
        (object(), DTypeError, "object"),
        ([["a", "b", "c"]] * 2, DTypeError, "list of text"),
        (np.ma.masked_array(ARRAY, ARRAY > 2), DTypeError, "masked array"),
        ([[True, False, True]] * 2, DTypeError, "bool"),
        (1.0, ShapeError, r"is \[\]"),
    ],
)
def test_what_does_not_fit_is_refused(
    value: object, error: type[Exception], words: str
) -> None:
    """The message names the run, the input, what came and what was declared."""
    with pytest.raises(error, match=words) as caught:
        feed(value)
    assert str(caught.value).startswith("run 'net', input 'signal'")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [([2**31], "i32"), ([-1], "u32"), ([2**70], "i32"), ([1.5], "i32"), ([2], "bool")],
)
def test_a_list_is_never_wrapped_or_truncated(value: list[object], dtype: str) -> None:
    """A list must hold numbers of the declared type."""
    with pytest.raises(DTypeError):
        feed(value, (1,), dtype)


@pytest.mark.parametrize("dtype", ["f32", "i32", "bool"])
def test_an_empty_list_has_any_type(dtype: str) -> None:
    """Nothing is lost by reading no numbers as another type."""
    assert feed([], (0,), dtype).shape == (0,)


def check(feeds: object) -> dict[str, Array]:
    graph = graph_of()
    return check_feeds(graph, graph.named("input"), feeds)


def test_inputs_are_a_dict_by_name() -> None:
    """Inputs are a dict of all names and no others."""
    made = check({"scale": 2.0, "signal": ARRAY})
    assert set(made) == {"signal", "scale"}
    assert made["scale"].shape == ()


def test_a_missing_input_is_named() -> None:
    """A missing input is named, with how many were given of how many."""
    with pytest.raises(InputError, match="'scale' was not given; 1 of 2 inputs"):
        check({"signal": ARRAY})


def test_an_unknown_name_gets_near_matches() -> None:
    """An unknown name is answered with the names there are."""
    with pytest.raises(UnknownName, match=r"no input 'sginal'.*mean 'signal'"):
        check({"sginal": ARRAY, "scale": 1.0})
    with pytest.raises(UnknownName, match="no input '7'"):
        check({7: ARRAY})


@pytest.mark.parametrize("feeds", [[ARRAY], ARRAY, [], "signal"])
def test_anything_but_a_dict_is_refused(feeds: object) -> None:
    """Anything but a dict is refused with the spelling that is meant."""
    with pytest.raises(
        InputError, match=r"was given; .* pass \{'signal': …, 'scale': …\}"
    ):
        check(feeds)
