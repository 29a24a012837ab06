"""Element types: every spelling that is meant, and refusals for the rest."""

from __future__ import annotations

import numpy as np
import pytest

from rlxweb.errors import DTypeError
from rlxweb.ir.dtype import DType, as_dtype


@pytest.mark.parametrize("dtype", list(DType))
def test_every_spelling_of_a_type_is_read(dtype: DType) -> None:
    """The enum, its label, NumPy's dtype, its scalar type and its name."""
    spellings = [dtype, dtype.label, dtype.numpy, dtype.numpy.type, dtype.numpy.name]
    assert {as_dtype(s) for s in spellings} == {dtype}
    assert as_dtype(dtype.numpy.newbyteorder(">")) is dtype


@pytest.mark.parametrize(
    "bad", ["f31", "", "f4", "i8", "<f4", np.complex64, np.int8, object(), None, 3.5]
)
def test_anything_else_is_refused(bad: object) -> None:
    """With the list of types that do exist; NumPy's byte counts are not bit counts."""
    with pytest.raises(DTypeError, match="bool, f16, i32, u32, i64, f32, f64"):
        as_dtype(bad)  # type: ignore[arg-type]


def test_sizes_and_kinds() -> None:
    """Bytes are NumPy's; floats and integers are told apart."""
    assert [d.nbytes for d in DType] == [1, 2, 4, 4, 8, 4, 8]
    assert {d for d in DType if d.is_float} == {DType.F16, DType.F32, DType.F64}
    assert {d for d in DType if d.is_integer} == {DType.I32, DType.U32, DType.I64}
