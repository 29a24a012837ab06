"""Coercion of caller-supplied values to ndarrays of numbers, with precise errors.

Every door through which arrays come (a run's inputs, params, constants, operands of a
graph; the samples of a signal function) asks here first, so that what is taken and what
is refused is the same everywhere. Taken: real and complex numbers and bools in an
ndarray or a subclass of it (a matrix is its 2-D array), in anything with `__array__`,
`__dlpack__` or the buffer protocol, in lists, tuples and other sequences. A masked
array is taken when nothing in it is masked. What dtype and shape must be is the door's
own business; graphs take bfloat16 beside the rest. Imports nothing of ours but the
errors and what bfloat16 is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.bfloat16 import as_bfloat16, from_torch_bfloat16, is_bfloat16
from rlxweb.core.errors import DTypeError, RlxError
from rlxweb.core.message_text import Advice

Array = npt.NDArray[Any]

NUMERIC_KINDS = frozenset("biufc")
_ARRAY_RULE = "expected an array of numbers"
_ARRAY_PROTOCOLS = ("__array__", "__dlpack__", "__array_interface__")
_ACCESSORS = {  # MNE, NiBabel, SciPy's sparse, a group of a recording
    "get_data": "x.get_data()",
    "get_fdata": "x.get_fdata()",
    "toarray": "x.toarray()",
    "read_stored": "x.read()",
}
_SAME_SHAPE_HINT = "pad or crop the rows to one shape, or pass each row separately"
_SCALARS = (bool, int, float, complex, np.generic, str, bytes)
# NumPy's own limit.
_MAX_AXES = 64
_KIND_NAMES = {
    "M": "dates",
    "m": "time differences",
    "S": "bytes",
    "U": "text",
    "T": "text",
}
_KIND_HINTS = {
    "M": "convert to seconds: (t - t[0]) / np.timedelta64(1, 's')",
    "m": "convert to seconds: t / np.timedelta64(1, 's')",
    "S": "convert bytes with np.frombuffer(data, dtype)",
    "U": "convert text with np.asarray(x, float)",
    "T": "convert text with np.asarray(x, float)",
}


_READ_BACK_ADVICE = "read it back: x.numpy()", "expected an array in host memory"


class DeviceResident:
    """Base class of arrays on a device, which are not read back implicitly."""

    __slots__ = ()


def add_readback_hint(error: RlxError, array_name: str) -> RlxError:
    """Add to the hint of an error to read the array back before the device is changed.

    array_name  its name
    """
    if isinstance(error.hint, Advice):
        error.hint = error.hint.before("device", f"{array_name}.numpy()")
    return error


def as_array(value: Any, context: str = "", allow_bfloat16: bool = False) -> Array:
    """Return the numbers of `value` as an ndarray, as a view where NumPy can make one.

    context  what the array is wanted for ("welch", "run 'net', input 'x'")
    bfloat16 whether arrays of it are taken, as they are in a graph
    returns  any shape, dtype kind b, i, u, f or c, any byte order and strides; of
             bfloat16 one of dtype `allow_bfloat16.BFLOAT16`

    Errors   DTypeError for a masked array, ragged rows, text, dates, objects, None, a
    dict, a file's name and everything else that is no array, with what to do.
    """
    if type(value) is np.ndarray and value.dtype.kind in NUMERIC_KINDS:
        return value
    try:
        array = _to_array(value)
        if allow_bfloat16 and is_bfloat16(array.dtype):
            return as_bfloat16(array)
        if array.dtype.kind not in NUMERIC_KINDS:
            raise _non_numeric_error(value, array)
    except RlxError as error:
        error.doing = error.doing or context
        raise
    except Exception as error:  # whatever another library's __array__ raises
        ragged, message = _describe_ragged(value), " ".join(str(error).split())
        problem = f"{describe_type(value)} cannot be converted to an array"
        hint = _SAME_SHAPE_HINT if ragged else _conversion_hint(value)
        raise DTypeError(context, problem, ragged or message, hint) from None
    return array


def describe_type(value: object) -> str:
    """Return a value's type in words: `a list`, `a pandas.DataFrame`, `None`."""
    if value is None:
        return "None"
    value_type = type(value)
    package = value_type.__module__.split(".")[0]
    name = (
        value_type.__qualname__
        if package == "builtins"
        else f"{package}.{value_type.__qualname__}"
    )
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _to_array(value: Any) -> Array:
    """Return the value as an ndarray. Raise DTypeError for masked arrays and what is no
    array.
    """
    error = _non_array_error(value) or _nested_masked_error(value)
    if error is not None:
        raise error
    if (tensor := from_torch_bfloat16(value)) is not None:
        return tensor
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    # What gives an array may give a masked one.
    array: Array = np.asanyarray(value)
    if (error := _masked_error(array)) is not None:
        raise error
    return array.view(np.ndarray)


def _array_error(problem: str, hint: str = "", rule: str = _ARRAY_RULE) -> DTypeError:
    """Return the DTypeError for a value that is not an array of numbers."""
    return DTypeError("", problem, rule, hint)


def _masked_error(array: Array) -> DTypeError | None:
    """Return the error for an array with masked values, else None."""
    # numpy.ma is slow to import, and whoever has a masked array has imported it.
    if "numpy.ma" not in sys.modules or not isinstance(array, np.ma.MaskedArray):
        return None
    if array.dtype.names or not (count := int(np.ma.getmaskarray(array).sum())):
        return None
    return _array_error(
        f"got a masked array with {count} of {array.size} values masked",
        "fill the masked values: x.filled(value)",
        "masked arrays are not supported",
    )


def _nested_masked_error(value: Any, depth: int = 0) -> DTypeError | None:
    """Return the error for a sequence that holds a masked array at any depth, else
    None.
    """
    if "numpy.ma" not in sys.modules or isinstance(value, _SCALARS):
        return None
    if hasattr(value, "__array__"):
        return _masked_error(np.asanyarray(value)) if depth else None
    if depth > _MAX_AXES or not _is_sequence(value) or _is_buffer(value):
        return None
    if all(issubclass(kind, _SCALARS) for kind in set(map(type, value))):
        return None
    errors = (_nested_masked_error(row, depth + 1) for row in value)
    return next((error for error in errors if error), None)


def _non_array_error(value: Any) -> DTypeError | None:
    """Return the error for a value that NumPy would wrap as an object or misinterpret,
    else None.
    """
    if value is None or isinstance(value, type):
        return _array_error(f"got {describe_type(value)}")
    if isinstance(value, DeviceResident):
        return _array_error(f"got a {value!r}", *_READ_BACK_ADVICE)
    if isinstance(value, list | tuple) and value and not isinstance(value[0], _SCALARS):
        for index, item in enumerate(value):
            if isinstance(item, DeviceResident):
                return _array_error(
                    f"element [{index}] is a {item!r}", *_READ_BACK_ADVICE
                )
    if isinstance(value, str | os.PathLike):
        return _array_error(
            f"got {describe_type(value)}: {str(value)[:60]!r}",
            "if it is a file name, read the file with rlxweb.io.open_recording or "
            "np.load",
        )
    if isinstance(value, bytes | bytearray):
        return _array_error(f"got {len(value)} bytes", _KIND_HINTS["S"])
    if isinstance(value, Mapping):
        keys = ", ".join(repr(k) for k in islice(value, 4))
        hint = f"pass one of its values; keys: {keys}" if keys else ""
        return _array_error(f"got {describe_type(value)}", hint)
    if not _is_array_like(value):
        return _array_error(f"got {describe_type(value)}", _conversion_hint(value))
    return None


def _is_array_like(value: Any) -> bool:
    """Return whether NumPy can read the value as an array."""
    if isinstance(value, bool | int | float | complex | list | tuple):
        return True
    if any(hasattr(value, name) for name in _ARRAY_PROTOCOLS):
        return True
    if _is_sequence(value):
        # A recording is a sequence too, of something else than its samples.
        return not _accessor_hint(value)
    return _is_buffer(value)


def _is_sequence(value: Any) -> bool:
    """Return whether a value has a length and can be indexed."""
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _is_buffer(value: Any) -> bool:
    """Return whether a value supports the buffer protocol."""
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _accessor_hint(value: Any) -> str:
    """Return a hint that names the method by which a foreign object returns its
    numbers.
    """
    for name, expression in _ACCESSORS.items():
        if callable(getattr(value, name, None)):
            return f"convert it to NumPy: {expression}"
    return ""


def _conversion_hint(value: Any) -> str:
    """Return a hint how to convert a value that is not array-like."""
    if hint := _accessor_hint(value):
        return hint
    if hasattr(value, "groups") and hasattr(value, "left_out"):  # our Recording
        return "pass the samples of a group: x.groups[0].read()"
    if callable(getattr(value, "readinto", None)):
        return "open the file by name with rlxweb.io.open_recording or np.load"
    is_single_pass = hasattr(value, "__iter__") and not hasattr(value, "__getitem__")
    return "collect the values first: list(x)" if is_single_pass else ""


def _non_numeric_error(value: Any, array: Array) -> DTypeError:
    """Return the error for an array whose dtype is not numeric."""
    kind = array.dtype.kind
    if kind in _KIND_NAMES:
        return _array_error(
            f"got {describe_type(value)} of {_KIND_NAMES[kind]}",
            _KIND_HINTS[kind],
        )
    if is_bfloat16(array.dtype):
        hint = (
            "convert it: rlxweb.core.bfloat16.to_float32("
            "rlxweb.core.bfloat16.as_bfloat16(x))"
        )
        if array is value:
            hint = "convert it: rlxweb.core.bfloat16.to_float32(x)"
        rule = "bfloat16 is not supported here"
        return _array_error("got an array of dtype bfloat16", hint, rule)
    if array.dtype.names:
        first, count = array.dtype.names[0], len(array.dtype.names)
        problem = f"got a structured array with {count} field{'s' * (count != 1)}"
        return _array_error(problem, f"pass one field: x[{first!r}]")
    if kind != "O":
        return _array_error(
            f"got an array of dtype {array.dtype}", "convert it: x.astype('float32')"
        )
    if ragged := _describe_ragged(array.tolist()):
        return _array_error("got an array of objects", _SAME_SHAPE_HINT, ragged)
    non_numbers = [v for v in array.flat if not isinstance(v, int | float)] or [
        *array.flat
    ]
    example = (
        f": {describe_type(non_numbers[0])}, {str(non_numbers[0])[:40]}"
        if non_numbers
        else ""
    )
    problem = f"got {describe_type(value)} of objects{example}"
    return _array_error(problem, "convert the objects to numbers: np.asarray(x, float)")


def _describe_ragged(rows: Any, depth: int = 0) -> str:
    """Describe which rows of nested sequences differ in shape; "" if none do."""
    if not isinstance(rows, list | tuple | np.ndarray) or depth > _MAX_AXES:
        return ""
    shapes = [_row_shape(row) for row in rows]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            return f"{_describe_row(0, shapes[0])}, {_describe_row(index, shape)}"
    return next(
        (
            description
            for row in rows
            if (description := _describe_ragged(row, depth + 1))
        ),
        "",
    )


def _row_shape(row: Any) -> tuple[int, ...]:
    """Return the shape of one row, as far as it shows."""
    if isinstance(row, np.ndarray):
        return tuple(row.shape)
    return (len(row),) if isinstance(row, Sequence) and not isinstance(row, str) else ()


def _describe_row(index: int, shape: tuple[int, ...]) -> str:
    """Describe a row by its shape."""
    if len(shape) == 1:
        return f"row {index} has {shape[0]} value{'s' * (shape[0] != 1)}"
    return (
        f"row {index} has shape {list(shape)}" if shape else f"row {index} is a scalar"
    )
