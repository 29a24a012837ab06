"""Element types: every accepted spelling, and refusals for the rest."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

import rlxweb
from rlxweb import Graph
from rlxweb.core.errors import DTypeError
from rlxweb.ir.dtype import DType, as_dtype


@pytest.mark.parametrize("dtype", list(DType))
def test_every_spelling_of_a_type_is_read(dtype: DType) -> None:
    """The enum, its label, NumPy's dtype, its scalar type and its name."""
    spellings = [dtype, dtype.label, dtype.numpy]
    if dtype is DType.BF16:  # NumPy has no such type; ml_dtypes has, but not in a tab
        spellings += ["bfloat16"]
        if find_spec("ml_dtypes") is not None:
            import ml_dtypes

            spellings += [np.dtype(ml_dtypes.bfloat16), ml_dtypes.bfloat16]
    else:
        spellings += [dtype.numpy.type, dtype.numpy.name]
    assert {as_dtype(s) for s in spellings} == {dtype}
    assert as_dtype(f" {dtype.label.upper()} ") is dtype
    assert as_dtype(dtype.numpy.newbyteorder(">")) is dtype


@pytest.mark.parametrize(
    "bad", ["f31", "", "f4", "u1", "<f4", np.complex64, np.void, object(), None, 3.5]
)
def test_anything_else_is_refused(bad: object) -> None:
    """A refusal lists the types that exist; NumPy's byte counts are not bit counts."""
    types = ", ".join(dtype.label for dtype in DType)
    with pytest.raises(DTypeError, match=f"supported dtypes: {types};"):
        as_dtype(bad)  # type: ignore[arg-type]


def test_bits_are_not_bytes() -> None:
    """RLX's f16 is NumPy's f2, its i8 NumPy's i1. Names that exist only in NumPy's byte
    counts are refused with their name here, and so are RLX's types that rlxweb lacks.
    """
    assert as_dtype("f16").numpy == np.float16
    assert as_dtype("i8").numpy == np.int8
    for code, label in {"f8": "f64", "<f4": "f32", "u4": "u32", "?": "bool"}.items():
        with pytest.raises(DTypeError, match=f"is '{label}' in rlxweb"):
            as_dtype(code)
    with pytest.raises(DTypeError, match=r"RLX's c64 is .* does not support"):
        as_dtype("c64")


@pytest.mark.parametrize("code", ["f8", "<i8", "<f4", "c64", "d"])
def test_every_entry_point_reads_names_in_the_same_way(code: str) -> None:
    """Inputs, params, constants, casts, sessions: one error for one mistake."""
    graph = Graph()
    x = graph.input("x", (2,))
    param = (
        rlxweb.Session("cpu")
        .compile(double_graph(graph.param("w", (2,))))
        .set_param_typed
    )
    entry_points = [
        lambda d: graph.input("y", (2,), d),
        lambda d: graph.param("z", (2,), d),
        lambda d: graph.constant([1.0, 2.0], d),
        lambda d: graph.cast(x, d),
        lambda d: x.cast(d),
        lambda d: graph.apply("cast", x, to=d),
        lambda d: param("w", np.ones(2), d),
        lambda d: rlxweb.Session("cpu", d),
    ]
    for entry_point in entry_points:
        with pytest.raises(
            DTypeError, match=r"no dtype for .*in rlxweb|does not support"
        ):
            entry_point(code)


@pytest.mark.parametrize(
    ("dtype", "finite", "too_large"),
    [
        ("f32", 3.4e38, 1e39),
        ("f32", -1e-45, -1e300),
        ("f16", 65504.0, 70000),
        ("bf16", 3.38e38, 3.4e38),
    ],
)
def test_finite_numbers_never_become_infinite(
    dtype: str, finite: float, too_large: float
) -> None:
    """No entry point narrows a finite number to infinity: operands, constants,
    params.
    """
    graph = Graph()
    x = graph.input("x", (2,), dtype)
    w = graph.param("w", (2,), dtype)
    graph.set_outputs([x + w])
    compiled = rlxweb.Session("cpu").compile(graph)
    entry_points = [
        lambda v: x * v,
        lambda v: graph.add(x, [v, 0.0]),
        lambda v: graph.constant(v, dtype),
        lambda v: graph.constant(np.array([v]), dtype),
        lambda v: compiled.set_param("w", [v, 0.0]),
        lambda v: compiled.set_param_typed("w", np.array([v, 0.0]), dtype),
        lambda v: compiled.run({"x": [v, 0.0]}),
    ]
    for entry_point in entry_points:
        entry_point(finite)
        entry_point(float("-inf"))
        with pytest.raises(
            DTypeError, match=f"cannot be represented as {dtype}; it is out of"
        ):
            entry_point(too_large)


def double_graph(value: rlxweb.Tensor) -> Graph:
    value.graph.set_outputs([value + value])
    return value.graph


def test_sizes_and_kinds() -> None:
    """Sizes in bytes are NumPy's; floats and integers are distinguished."""
    bits = {"bool": 8, "bf16": 16} | {
        f"{kind}{n}": n
        for kind, sizes in {"i": (8, 16, 32, 64), "f": (16, 32, 64)}.items()
        for n in sizes
    }
    for dtype in DType:
        signed_label = dtype.label.replace("u", "i")
        assert dtype.nbytes * 8 == bits[signed_label]
        assert dtype.is_integer == signed_label.startswith("i")
        assert dtype.is_unsigned == dtype.label.startswith("u")
        assert dtype.is_float == ("f" in dtype.label)
