"""Validation of run inputs before any device is involved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlxweb.core.errors import DTypeError, InputError, ShapeError, UnknownName
from rlxweb.ir.graph import Graph
from rlxweb.runtime.input_validation import validate_array, validate_feeds
from tests.engines_under_test import Array, strided_view


def two_input_graph(shape: tuple[int, ...] = (2, 3), dtype: str = "f32") -> Graph:
    """Build a graph with the inputs 'signal' and 'scale'."""
    graph = Graph("net")
    graph.input("signal", shape, dtype)
    graph.input("scale", (), "f32")
    return graph


def validate_signal(
    value: object, shape: tuple[int, ...] = (2, 3), dtype: str = "f32"
) -> Array:
    """Validate one value as input 'signal'."""
    graph = two_input_graph(shape, dtype)
    return validate_array("run 'net'", graph.named("input")["signal"], value)


ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


EQUAL_VALUES = {
    "plain": ARRAY,
    "byte-swapped": ARRAY.astype(">f4"),
    "column-major": np.asfortranarray(ARRAY),
    "strided": strided_view(ARRAY, 0),
    "reversed": strided_view(ARRAY, 1),
    "list": ARRAY.tolist(),
    "tuple": tuple(map(tuple, ARRAY.tolist())),
    "list of ints": [[0, 1, 2], [3, 4, 5]],
    "buffer": memoryview(ARRAY),
}


@pytest.mark.parametrize("layout", EQUAL_VALUES)
def test_memory_layout_does_not_matter(layout: str) -> None:
    """Values are accepted in any strides, byte order and container; the result is
    native.
    """
    validated = validate_signal(EQUAL_VALUES[layout])
    assert validated.dtype == np.float32
    assert validated.dtype.isnative
    np.testing.assert_array_equal(validated, ARRAY)


def test_read_only_arrays_are_accepted() -> None:
    """Runs only read their inputs."""
    read_only = ARRAY.copy()
    read_only.setflags(write=False)
    np.testing.assert_array_equal(validate_signal(read_only), ARRAY)


def test_array_protocols_are_accepted() -> None:
    """Objects with `__array__` or `__dlpack__` are accepted."""

    class ArrayProtocolObject:
        def __array__(self, dtype: object = None, copy: object = None) -> Array:
            return ARRAY

    class DlpackObject:
        def __dlpack__(self, **options: object) -> object:
            return ARRAY.__dlpack__(**options)  # type: ignore[arg-type]

        def __dlpack_device__(self) -> tuple[int, int]:
            return ARRAY.__dlpack_device__()

    np.testing.assert_array_equal(validate_signal(ArrayProtocolObject()), ARRAY)
    np.testing.assert_array_equal(validate_signal(DlpackObject()), ARRAY)


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
def test_arrays_are_never_converted(dtype: str, array: Array) -> None:
    """Arrays are never narrowed, widened or reshaped: they are accepted or refused."""
    want = two_input_graph(dtype=dtype).named("input")["signal"].type.dtype.numpy
    if array.dtype.newbyteorder("=") != want:
        with pytest.raises(DTypeError):
            validate_signal(array, dtype=dtype)
    elif array.shape != (2, 3):
        with pytest.raises(ShapeError):
            validate_signal(array, dtype=dtype)
    else:
        np.testing.assert_array_equal(validate_signal(array, dtype=dtype), array)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (
            ARRAY.astype(np.float64),
            DTypeError,
            "has dtype float64; .* declares dtype f32; cast the array",
        ),
        (ARRAY.astype(complex), DTypeError, "complex128"),
        (ARRAY[0], ShapeError, r"has shape \[3\]; the graph declares shape \[2, 3\]"),
        (ARRAY.T, ShapeError, r"has shape \[3, 2\]"),
        ([[1, 2, 3], [4, 5]], DTypeError, "row 0 has 3 values, row 1 has 2"),
        (None, DTypeError, "got None"),
        ("abc", DTypeError, "got a str"),
        (object(), DTypeError, "object"),
        ([["a", "b", "c"]] * 2, DTypeError, "list of text"),
        (np.ma.masked_array(ARRAY, ARRAY > 2), DTypeError, "masked array"),
        ([[True, False, True]] * 2, DTypeError, "bool"),
        (1.0, ShapeError, r"has shape \[\]"),
    ],
)
def test_wrong_dtype_or_shape_is_rejected(
    value: object, error: type[Exception], message: str
) -> None:
    """The message names the run, the input, the given and the declared type."""
    with pytest.raises(error, match=message) as caught:
        validate_signal(value)
    assert str(caught.value).startswith("run 'net', input 'signal'")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [([2**31], "i32"), ([-1], "u32"), ([2**70], "i32"), ([1.5], "i32"), ([2], "bool")],
)
def test_list_values_are_never_wrapped_or_truncated(
    value: list[object], dtype: str
) -> None:
    """A list must hold numbers of the declared type."""
    with pytest.raises(DTypeError):
        validate_signal(value, (1,), dtype)


@pytest.mark.parametrize("dtype", ["f32", "i32", "bool"])
def test_empty_list_fits_any_dtype(dtype: str) -> None:
    """An empty list is accepted as any dtype because no value can be lost."""
    assert validate_signal([], (0,), dtype).shape == (0,)


def validate_run_inputs(feeds: object) -> dict[str, Array]:
    """Validate feeds as the inputs of the two-input graph."""
    graph = two_input_graph()
    return validate_feeds(graph, graph.named("input"), feeds)


def test_inputs_are_given_by_name() -> None:
    """Inputs are a dict with every name and no others."""
    validated = validate_run_inputs({"scale": 2.0, "signal": ARRAY})
    assert set(validated) == {"signal", "scale"}
    assert validated["scale"].shape == ()


def test_missing_input_is_named() -> None:
    """The error names a missing input and counts those given."""
    with pytest.raises(InputError, match="'scale' was not given; 1 of 2 inputs"):
        validate_run_inputs({"signal": ARRAY})


def test_unknown_name_gets_suggestions() -> None:
    """The error for an unknown name lists the existing names."""
    with pytest.raises(UnknownName, match=r"no input 'sginal'.*mean 'signal'"):
        validate_run_inputs({"sginal": ARRAY, "scale": 1.0})
    with pytest.raises(UnknownName, match="no input '7'"):
        validate_run_inputs({7: ARRAY})


@pytest.mark.parametrize("feeds", [[ARRAY], ARRAY, [], "signal"])
def test_non_dict_inputs_are_rejected(feeds: object) -> None:
    """Anything but a dict is refused with the expected form."""
    with pytest.raises(
        InputError, match=r"got an? .*; .* pass \{'signal': …, 'scale': …\}"
    ):
        validate_run_inputs(feeds)
