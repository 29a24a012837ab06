"""Arrays of 64 bits for shaders of 32: looked through when they are given.

A plan says between which values an input may lie so that all that is computed of it
fits (`compile/narrowing.py`). One that lies elsewhere is an error with its place before
anything is computed; what comes back is widened again. Knows no buffers.
"""

from __future__ import annotations

import numpy as np

from rlxweb.advice import Advice
from rlxweb.backends.protocol import Array
from rlxweb.compile.plan import Held, Plan
from rlxweb.errors import DTypeError
from rlxweb.ir.bounds import whole
from rlxweb.ir.dtype import DType
from rlxweb.ir.shape import show

NARROWER = {DType.I64: DType.I32, DType.U64: DType.U32, DType.F64: DType.F32}
"""Types that WGSL has not, and what values that fit are held in."""


def held_as(dtype: DType) -> DType:
    """The type in which shaders have an array of one."""
    return NARROWER.get(dtype, dtype)


def fed(plan: Plan, name: str, array: Array) -> Array:
    """An input or param as the shaders of a plan have it.

    Errors   DTypeError with the first value that they cannot have.
    """
    held = plan.given.get(name)
    if held is None:
        return array
    op = "input" if name in plan.graph.named("input") else "param"
    return narrow(f"{op} '{name}' of '{plan.graph.name}'", array, held)[0]


def check_held(plan: Plan, name: str, mine: Held | None) -> None:
    """May what lies on the device be this input or param? Errors  DTypeError."""
    held = plan.given.get(name)
    if held is None or mine is None or held.dtype.is_float:
        return
    if mine.low < held.low or mine.high > held.high:
        raise DTypeError(
            f"input '{name}' of '{plan.graph.name}'",
            f"the array on the device may hold {mine}",
            _rule(held),
            "read it back and give it from the host, where it is looked through",
        )


def free_of(dtype: DType) -> Held:
    """What an array may hold that no plan has asked for."""
    if dtype.is_float:
        return Held(dtype, *whole(dtype))
    low, high = whole(held_as(dtype))
    return Held(dtype, max(low, -high), high)


def narrow(doing: str, array: Array, held: Held) -> tuple[Array, Held]:
    """The numbers in the narrower type, and between which of them they lie.

    Errors   DTypeError with the first that does not fit.
    """
    if held.dtype.is_float:
        return _as_singles(doing, array, held), held
    if not array.size:
        return array.astype(held_as(held.dtype).numpy), Held(held.dtype, 0, 0)
    low = int(np.minimum.reduce(array, axis=None))
    high = int(np.maximum.reduce(array, axis=None))
    if low < held.low or high > held.high:
        _refuse(doing, array, (array < held.low) | (array > held.high), held)
    return array.astype(held_as(held.dtype).numpy), Held(held.dtype, low, high)


def _as_singles(doing: str, array: Array, held: Held) -> Array:
    with np.errstate(all="ignore"):
        single = array.astype(np.float32)
        if held.floats == "rounded":
            return single
        if held.floats == "odd":
            return _to_odd(array, single)
        differs = (single != array) & (single == single)
        # a device may take what lies so near to 0 for 0
        differs |= (np.abs(array) < np.finfo(np.float32).tiny) & (array != 0)
    if differs.any():
        _refuse(doing, array, differs, held)
    return single


def _to_odd(array: Array, single: Array) -> Array:
    """Toward 0, and the last bit set where digits were lost: rounding the result once
    more is rounding the double once.
    """
    single = np.array(single)
    bits = single.view(np.uint32)
    lost = np.isfinite(array) & (single != array)
    bits -= (lost & (np.abs(single) > np.abs(array))).astype(np.uint32)
    bits |= lost.astype(np.uint32)
    return single


def _refuse(doing: str, array: Array, wrong: Array, held: Held) -> None:
    flat = int(np.argmax(wrong))
    place = show([int(i) for i in np.unravel_index(flat, array.shape)])
    raise DTypeError(
        doing,
        f"it is {array.reshape(-1)[flat].item()!r} at position {place}",
        _rule(held),
        Advice(
            f"{'cast' if held.dtype.is_float else 'narrow'} them, or run with {{}}",
            device="cpu",
        ),
    )


def _rule(held: Held) -> str:
    to = held_as(held.dtype)
    if held.dtype.is_float:
        return f"the device has no {held.dtype} and takes what {to} holds exactly"
    text = f"the device has no {held.dtype} and takes {held.low} to {held.high}"
    return text + (f", so that {held.because} fits {to}" if held.because else "")


def widened(array: Array, dtype: np.dtype[np.generic]) -> Array:
    """What came back, in the type that was declared."""
    return array if array.dtype == dtype else array.astype(dtype)
