"""From what a caller hands in to an ndarray of numbers, or an error that names it.

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

from rlxweb.advice import Advice
from rlxweb.bfloat16 import is_bfloat16, native, of_tensor
from rlxweb.errors import DTypeError, RlxError

Array = npt.NDArray[Any]

NUMBERS = frozenset("biufc")
_WANTED = "an array of numbers is wanted"
_GIVES_ARRAY = ("__array__", "__dlpack__", "__array_interface__")
_GIVING = {  # MNE, NiBabel, SciPy's sparse, a group of a recording
    "get_data": "x.get_data()",
    "get_fdata": "x.get_fdata()",
    "toarray": "x.toarray()",
    "read_stored": "x.read()",
}
_ONE_SHAPE = "pad or cut them to one shape, or pass each by itself"
_SCALARS = (bool, int, float, complex, np.generic, str, bytes)
# NumPy's own limit.
_MOST_AXES = 64
_HOLDS = {"M": "dates", "m": "time differences", "S": "bytes", "U": "text", "T": "text"}
_INSTEAD = {
    "M": "pass numbers: (t - t[0]) / np.timedelta64(1, 's') is in seconds",
    "m": "pass numbers: t / np.timedelta64(1, 's') is in seconds",
    "S": "read numbers from bytes with np.frombuffer(data, dtype)",
    "U": "read numbers from text with np.asarray(x, float)",
    "T": "read numbers from text with np.asarray(x, float)",
}


_READ_BACK = "read it back: x.numpy()", "an array in the host's memory is wanted"


class OnDevice:
    """What lies on a device, and is not read back because a door wants an array."""

    __slots__ = ()


def from_there(error: RlxError, array: str) -> RlxError:
    """The error of a call whose array lies on a device, which no other one takes: who
    is sent to the CPU is told to bring it home.

    array   its name
    """
    if isinstance(error.hint, Advice):
        error.hint = error.hint.before("device", f"{array}.numpy()")
    return error


def array_of(given: Any, doing: str = "", bfloat16: bool = False) -> Array:
    """The numbers of `given` as an ndarray; a view where NumPy can make one.

    doing    what the array is wanted for ("welch", "run 'net', input 'x'")
    bfloat16 whether arrays of it are taken, as they are in a graph
    returns  any shape, dtype kind b, i, u, f or c, any byte order and strides; of
             bfloat16 one of dtype `bfloat16.BFLOAT16`

    Errors   DTypeError for a masked array, ragged rows, text, dates, objects, None, a
    dict, a file's name and everything else that is no array, with what to do.
    """
    if type(given) is np.ndarray and given.dtype.kind in NUMBERS:
        return given
    try:
        array = _read(given)
        if bfloat16 and is_bfloat16(array.dtype):
            return native(array)
        if array.dtype.kind not in NUMBERS:
            raise _not_numbers(given, array)
    except RlxError as error:
        error.doing = error.doing or doing
        raise
    except Exception as error:  # whatever another library's __array__ raises
        ragged, said = _ragged(given), " ".join(str(error).split())
        problem = f"{named(given)} cannot be read as an array"
        hint = _ONE_SHAPE if ragged else _way_out(given)
        raise DTypeError(doing, problem, ragged or said, hint) from None
    return array


def named(given: object) -> str:
    """A thing and its type in words: `a list`, `a pandas.DataFrame`, `None`."""
    if given is None:
        return "None"
    kind = type(given)
    home = kind.__module__.split(".")[0]
    name = kind.__qualname__ if home == "builtins" else f"{home}.{kind.__qualname__}"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _read(given: Any) -> Array:
    refused = _no_array(given) or _masked_within(given)
    if refused is not None:
        raise refused
    if (tensor := of_tensor(given)) is not None:
        return tensor
    if hasattr(given, "__dlpack__") and not hasattr(given, "__array__"):
        return np.from_dlpack(given)
    # What gives an array may give a masked one.
    array: Array = np.asanyarray(given)
    if (refused := _masked(array)) is not None:
        raise refused
    return array.view(np.ndarray)


def _refused(problem: str, hint: str = "", rule: str = _WANTED) -> DTypeError:
    return DTypeError("", problem, rule, hint)


def _masked(array: Array) -> DTypeError | None:
    # numpy.ma is slow to import, and whoever has a masked array has imported it.
    if "numpy.ma" not in sys.modules or not isinstance(array, np.ma.MaskedArray):
        return None
    if array.dtype.names or not (count := int(np.ma.getmaskarray(array).sum())):
        return None
    return _refused(
        f"it is a masked array with {count} of {array.size} values masked",
        "fill or repair them: x.filled(value)",
        "a mask would be lost here",
    )


def _masked_within(given: Any, depth: int = 0) -> DTypeError | None:
    """The refusal of a sequence that holds a masked array, at any depth."""
    if "numpy.ma" not in sys.modules or isinstance(given, _SCALARS):
        return None
    if hasattr(given, "__array__"):
        return _masked(np.asanyarray(given)) if depth else None
    if depth > _MOST_AXES or not _is_sequence(given) or _is_buffer(given):
        return None
    if all(issubclass(kind, _SCALARS) for kind in set(map(type, given))):
        return None
    within = (_masked_within(row, depth + 1) for row in given)
    return next((found for found in within if found), None)


def _no_array(given: Any) -> DTypeError | None:
    """The refusal of what NumPy would wrap whole or take in a sense nobody means."""
    if given is None or isinstance(given, type):
        return _refused(f"{named(given)} was given")
    if isinstance(given, OnDevice):
        return _refused(f"it is a {given!r}", *_READ_BACK)
    if isinstance(given, list | tuple) and given and not isinstance(given[0], _SCALARS):
        for at, one in enumerate(given):
            if isinstance(one, OnDevice):
                return _refused(f"[{at}] of it is a {one!r}", *_READ_BACK)
    if isinstance(given, str | os.PathLike):
        return _refused(
            f"{named(given)} was given: {str(given)[:60]!r}",
            "if it names a file, read it first: rlxweb.io.open_recording, np.load",
        )
    if isinstance(given, bytes | bytearray):
        return _refused(f"{len(given)} bytes were given", _INSTEAD["S"])
    if isinstance(given, Mapping):
        keys = ", ".join(repr(k) for k in islice(given, 4))
        hint = f"pass one of its values; its keys: {keys}" if keys else ""
        return _refused(f"{named(given)} was given", hint)
    if not _is_array_like(given):
        return _refused(f"{named(given)} was given", _way_out(given))
    return None


def _is_array_like(given: Any) -> bool:
    if isinstance(given, bool | int | float | complex | list | tuple):
        return True
    if any(hasattr(given, name) for name in _GIVES_ARRAY):
        return True
    if _is_sequence(given):
        # A recording is a sequence too, of something else than its samples.
        return not _hands_out(given)
    return _is_buffer(given)


def _is_sequence(given: Any) -> bool:
    return hasattr(given, "__getitem__") and hasattr(given, "__len__")


def _is_buffer(given: Any) -> bool:
    try:
        memoryview(given)
    except TypeError:
        return False
    return True


def _hands_out(given: Any) -> str:
    """The method by which an object of somebody's gives its numbers."""
    for name, how in _GIVING.items():
        if callable(getattr(given, name, None)):
            return f"pass its numbers: {how}"
    return ""


def _way_out(given: Any) -> str:
    if how := _hands_out(given):
        return how
    if hasattr(given, "groups") and hasattr(given, "left_out"):  # our Recording
        return "pass the numbers of a group: x.groups[0].read()"
    if callable(getattr(given, "readinto", None)):
        return "read the file by its name: rlxweb.io.open_recording, np.load"
    once = hasattr(given, "__iter__") and not hasattr(given, "__getitem__")
    return "collect its values first: list(x)" if once else ""


def _not_numbers(given: Any, array: Array) -> DTypeError:
    kind = array.dtype.kind
    if kind in _HOLDS:
        return _refused(f"{named(given)} of {_HOLDS[kind]} was given", _INSTEAD[kind])
    if is_bfloat16(array.dtype):
        hint = "widen it: rlxweb.bfloat16.to_float32(rlxweb.bfloat16.native(x))"
        if array is given:
            hint = "widen it: rlxweb.bfloat16.to_float32(x)"
        return _refused("it is of bfloat16", hint)
    if array.dtype.names:
        first = array.dtype.names[0]
        problem = f"it has {len(array.dtype.names)} fields"
        return _refused(problem, f"pass one of them: x[{first!r}]")
    if kind != "O":
        return _refused(f"it is of dtype {array.dtype}", "x.astype('float32')")
    if ragged := _ragged(array.tolist()):
        return _refused("it is an array of objects", _ONE_SHAPE, ragged)
    odd = [v for v in array.flat if not isinstance(v, int | float)] or [*array.flat]
    such = f": {named(odd[0])}, {str(odd[0])[:40]}" if odd else ""
    problem = f"{named(given)} of objects was given{such}"
    return _refused(problem, "make numbers of them: np.asarray(x, float)")


def _ragged(rows: Any, depth: int = 0) -> str:
    """Which rows of nested sequences differ in shape; "" where none do."""
    if not isinstance(rows, list | tuple | np.ndarray) or depth > _MOST_AXES:
        return ""
    shapes = [_shape(row) for row in rows]
    for at, shape in enumerate(shapes):
        if shape != shapes[0]:
            return f"{_worded(0, shapes[0])}, {_worded(at, shape)}"
    return next((found for row in rows if (found := _ragged(row, depth + 1))), "")


def _shape(row: Any) -> tuple[int, ...]:
    if isinstance(row, np.ndarray):
        return tuple(row.shape)
    return (len(row),) if isinstance(row, Sequence) and not isinstance(row, str) else ()


def _worded(at: int, shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"row {at} has {shape[0]} value{'s' * (shape[0] != 1)}"
    return f"row {at} has shape {list(shape)}" if shape else f"row {at} is one value"
