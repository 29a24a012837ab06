"""Arrays that lie on a device: what `put` makes and runs keep, for runs to take again.

Nothing here moves unasked: reading back has a name, and a run on another device is told
what lies where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.backends.protocol import Array, Backend, Resident
from rlxweb.device import Device, DeviceLike, is_open, parse_device
from rlxweb.errors import (
    CannotLend,
    DeviceLost,
    DTypeError,
    InputError,
    SessionClosed,
    UnknownDevice,
    Unsupported,
    UsageError,
    shown,
)
from rlxweb.given import OnDevice, array_of
from rlxweb.gpu.beside import awaited_here
from rlxweb.gpu.drive import drive
from rlxweb.ir.dtype import as_dtype, shown_dtype
from rlxweb.ir.shape import show

Keep = bool | Sequence[int]
"""Which outputs stay on the device: all, none, or those of these positions."""
_HOST = 1
"""DLPack's number for memory of the host."""


class DeviceArray(OnDevice):
    """An array on a device. `rlx.put` makes one, and so does a run with `keep=True`.

    Runs take it where they take an array, on its own device; its numbers never change.
    Only what asks for a NumPy array by name reads it back: `numpy`, np.asarray. NumPy's
    operators and functions, `==` and `if` raise. Its memory goes with the last
    reference, and at once by `close` or a `with` block.

    device   where it lies
    adapter  the part of an adapter's name that was asked for
    """

    __slots__ = ("__weakref__", "_closed", "_resident", "adapter", "device")

    def __init__(self, resident: Resident, device: Device, adapter: str = "") -> None:
        self._resident, self._closed = resident, False
        self.device, self.adapter = device, adapter

    @property
    def shape(self) -> tuple[int, ...]:
        return self._resident.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._resident.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the array; a device may take more of its memory for it."""
        return self.size * self.dtype.itemsize

    @property
    def engine(self) -> str:
        """The engine it lies on, in words: "NumPy 2.4", "llvmpipe (vulkan)"."""
        return self._resident.engine.name

    @property
    def closed(self) -> bool:
        """Was its memory given back?"""
        return self._closed

    def __repr__(self) -> str:
        kind = f"{show(self.shape)} {as_dtype(self.dtype)}"
        gone = ", lost" if self._resident.engine.lost else ""
        gone = ", closed" if self._closed else gone
        return f"DeviceArray({kind} on {self.engine}{gone})"

    def __len__(self) -> int:
        if not self.shape:
            self._would_move("len()", "it is a single number")
        return self.shape[0]

    def __bool__(self) -> bool:
        self._would_move("the truth value")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DeviceArray | np.ndarray | np.generic | int | float):
            self._would_move("`==`")
        return NotImplemented

    __hash__ = object.__hash__

    def __array_ufunc__(
        self, function: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> NoReturn:
        self._would_move(f"np.{function.__name__}")

    def __array_function__(
        self, function: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        known = {np.shape: self.shape, np.ndim: self.ndim, np.size: self.size}
        if function in known and len(args) == 1 and args[0] is self and not kwargs:
            return known[function]
        self._would_move(f"np.{function.__name__}")

    def _would_move(
        self, wanted: str, why: str = "its numbers lie on the device"
    ) -> NoReturn:
        raise DTypeError(f"{wanted} of {self!r}", why, hint="read it back: x.numpy()")

    def numpy(self) -> Array:
        """Read back: a NumPy array in memory of its own.

        Errors   SessionClosed after `close`; DeviceLost, GpuTimeout.
        """
        return drive(self.read_back())

    async def numpy_async(self) -> Array:
        """`numpy` beside the caller's event loop."""
        return await awaited_here(self.read_back)

    async def read_back(self) -> Array:
        """`numpy` where the core awaits it, whoever drives that."""
        array = await self._read("read back")
        return array if array.flags.writeable else array.copy()

    async def _read(self, doing: str) -> Array:
        doing = f"{doing} {self!r}"
        engine = self._resident.engine
        return await engine.get(self.lying_on(engine, doing))

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> Array:
        """Read back for NumPy; where it need not be moved, a view to read only.

        Errors   those of `numpy`; ValueError for `copy=False` where that takes a copy.
        """
        array = drive(self._read("read back"))
        other = dtype is not None and dtype != array.dtype
        if copy is False and (other or array.flags.writeable):
            raise ValueError(f"{self!r} cannot be a NumPy array without a copy")
        if other:
            return array.astype(dtype)
        return array.copy() if copy and not array.flags.writeable else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's numbers for the device. Errors  CannotLend where it has none."""
        kind, number = self._lent("ask for the DLPack device of").__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, *, copy: bool | None = None, **asked: Any) -> Any:
        """A DLPack capsule: of a copy on the same device, as others may write into it.

        copy     False: of the very memory, which must then only be read
        asked    stream, max_version, dl_device: as the standard has them
        Errors   CannotLend where no other library can have it.
        """
        lent = self._lent("lend", copy=copy is not False)
        return lent.__dlpack__(**{k: v for k, v in asked.items() if v is not None})

    def _lent(self, doing: str, copy: bool = False) -> Any:
        engine = self._resident.engine
        doing = f"{doing} {self!r}"
        lent = engine.lend(self.lying_on(engine, doing), copy)
        if lent is None:
            raise CannotLend(
                doing,
                "no other library can use this memory",
                hint="read it back: x.numpy()",
            )
        return lent

    def lying_on(self, engine: Backend, doing: str) -> Resident:
        """What the engine has of it.

        Errors   SessionClosed after `close`; DeviceLost; InputError where it lies
        elsewhere.
        """
        mine = self._resident
        if self._closed:
            raise SessionClosed(doing, "the array was closed", hint="put it there anew")
        if mine.engine.lost:
            raise DeviceLost(
                doing,
                f"the array was lost with {self.engine} ({mine.engine.lost})",
                "what stays on a device has no copy elsewhere",
                f"put it there again: rlxweb.put(x, {self.device.label!r})",
            )
        if engine.lost:
            raise DeviceLost(doing, f"{engine.name} was lost ({engine.lost})")
        if not engine.holds(mine):
            raise InputError(
                doing,
                f"the array lies on device {self.device.label!r}, {self.engine}",
                f"the run is on {engine.name}"
                + (", opened apart from it" if engine.name == self.engine else ""),
                "nothing is moved unasked: pass x.numpy(), or put it where it runs",
            )
        return mine

    def close(self) -> None:
        """Give its memory back. Idempotent; it cannot be used any more."""
        if not self._closed:
            self._closed = True
            mine = self._resident
            # An engine may have nothing to free but its own array, which goes with it.
            self._resident = Resident(mine.engine, mine.shape, mine.dtype)
            drive(mine.engine.free(mine))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise Unsupported(
            f"pickle of a {self!r}",
            "it is memory of a device",
            hint="pickle x.numpy()",
        )


def put(x: Any, device: DeviceLike, adapter: str = "") -> DeviceArray:
    """A copy of an array on a device, to stay there for runs to take.

    x        anything array-like; what has `__dlpack__` and lies on that very device is
             copied there and never comes to the host
    device   a Device, its name or an alias
    adapter  part of an adapter's name, where a device has several

    >>> x = rlx.put(batch, "vulkan")
    >>> (y,) = compiled.run({"x": x}, keep=True)
    >>> y.numpy()

    Errors   UnknownDevice, AdapterMissing; DTypeError for what is no array or of a type
    that the device has not; OutOfMemory, LimitExceeded.
    """
    return drive(_put(x, device, adapter))


async def put_async(x: Any, device: DeviceLike, adapter: str = "") -> DeviceArray:
    """`put` beside the caller's event loop."""
    return await awaited_here(lambda: _put(x, device, adapter))


async def _put(x: Any, device: DeviceLike, adapter: str) -> DeviceArray:
    if is_open(device):
        raise UnknownDevice(
            "put",
            "'auto' names no device",
            hint="name it, or use compiled.put(x)",
        )
    which = parse_device(device)
    engine = await pool.backend_async(which.label, adapter)
    return await put_on(engine, x, which, adapter)


async def put_on(engine: Backend, x: Any, device: Device, adapter: str) -> DeviceArray:
    """`put` on an open engine."""
    doing = f"put an array on {engine.name}"
    taken = None
    if isinstance(x, DeviceArray):
        x = await x._read("move")
    elif _lies_on_a_device(x):
        taken = await engine.take(x)
    if taken is None:
        taken = await engine.put(_fitting(engine, x, doing))
    return DeviceArray(taken, device, adapter)


def _lies_on_a_device(x: Any) -> bool:
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack_device__"):
        return False
    try:
        return int(x.__dlpack_device__()[0]) != _HOST
    except Exception:  # whatever another library raises; reading it says what is wrong
        return False


def _fitting(engine: Backend, x: Any, doing: str) -> Array:
    """The array, of a type that the engine has. Errors  DTypeError."""
    array = array_of(x, doing, bfloat16=True)
    dtype = as_dtype(array.dtype)
    known = engine.target.accepts
    if dtype not in known and dtype not in engine.target.narrower:
        raise DTypeError(
            doing,
            f"the array is {shown_dtype(array.dtype)}",
            f"this device has {', '.join(sorted(d.label for d in known))}",
            "cast it: np.asarray(x, 'float32')",
        )
    return array.astype(dtype.numpy, copy=False)


def staying(keep: Keep, count: int, doing: str) -> tuple[bool, ...] | None:
    """For each output, does it stay? None where none does. Errors  UsageError."""
    if keep is False:
        return None
    if keep is True:
        return (True,) * count
    wanted: list[object] = [None]
    if isinstance(keep, Iterable):
        wanted = list(keep)
    if not all(type(at) is int and 0 <= at < count for at in wanted):
        raise UsageError(
            doing,
            f"keep is {shown(keep)}",
            f"it is True, False, or positions of outputs, 0 to {count - 1}",
        )
    return tuple(at in wanted for at in range(count)) if wanted else None
