"""Arrays on a device: made by `put` or kept by runs, for later runs to take.

Nothing here moves unasked: reading back has a name, and a run on another device is told
what lies where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Self

import numpy as np

from rlxweb.core.array_coercion import DeviceResident, as_array
from rlxweb.core.device import Device, DeviceLike, is_auto, parse_device
from rlxweb.core.errors import (
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
from rlxweb.engines.capabilities import ImportsDlpack
from rlxweb.engines.pool import pool
from rlxweb.engines.protocol import Array, DeviceBuffer, Engine
from rlxweb.gpu.coroutine_runner import await_or_offload, run_blocking
from rlxweb.ir.dtype import as_dtype, dtype_name
from rlxweb.ir.shape_arithmetic import format_shape

Keep = bool | Sequence[int]
"""Selection of the outputs that stay on the device: all, none, or those at these
positions.
"""
_DLPACK_HOST = 1
"""DLPack's device type of host memory."""


class DeviceArray(DeviceResident):
    """Array on a device, made by `rlx.put` or by a run with `keep=True`.

    Runs take it where they take an array, on its own device; its numbers never change.
    Only what asks for a NumPy array by name reads it back: `numpy`, np.asarray. NumPy's
    operators and functions, `==` and `if` raise. Its memory goes with the last
    reference, and at once by `close` or a `with` block.

    device   where it lies
    adapter  the part of an adapter's name that was asked for
    """

    __slots__ = ("__weakref__", "_buffer", "_closed", "adapter", "device")

    def __init__(self, buffer: DeviceBuffer, device: Device, adapter: str = "") -> None:
        self._buffer, self._closed = buffer, False
        self.device, self.adapter = device, adapter

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of its axes."""
        return self._buffer.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of its elements."""
        return self._buffer.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the array; a device may take more of its memory for it."""
        return self.size * self.dtype.itemsize

    @property
    def engine(self) -> str:
        """Name of the engine that holds it: "NumPy 2.4", "llvmpipe (vulkan)"."""
        return self._buffer.engine.name

    @property
    def closed(self) -> bool:
        """True once its memory was freed."""
        return self._closed

    def __repr__(self) -> str:
        kind = f"{format_shape(self.shape)} {as_dtype(self.dtype)}"
        state = ", lost" if self._buffer.engine.lost else ""
        state = ", closed" if self._closed else state
        return f"DeviceArray({kind} on {self.engine}{state})"

    def __len__(self) -> int:
        if not self.shape:
            self._refuse_implicit_copy("len()", "a scalar has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        self._refuse_implicit_copy("the truth value")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DeviceArray | np.ndarray | np.generic | int | float):
            self._refuse_implicit_copy("`==`")
        return NotImplemented

    __hash__ = object.__hash__

    def __array_ufunc__(
        self, function: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> NoReturn:
        self._refuse_implicit_copy(f"np.{function.__name__}")

    def __array_function__(
        self, function: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        answers = {np.shape: self.shape, np.ndim: self.ndim, np.size: self.size}
        if function in answers and len(args) == 1 and args[0] is self and not kwargs:
            return answers[function]
        self._refuse_implicit_copy(f"np.{function.__name__}")

    def _refuse_implicit_copy(
        self, operation: str, reason: str = "its values are on the device"
    ) -> NoReturn:
        """Raise DTypeError: the operation would copy the array to the host."""
        raise DTypeError(
            f"{operation} of {self!r}", reason, hint="read it back: x.numpy()"
        )

    def numpy(self) -> Array:
        """Read the array back as a NumPy array in memory of its own.

        Errors   SessionClosed after `close`; DeviceLost, GpuTimeout.
        """
        return run_blocking(self.read_back())

    async def numpy_async(self) -> Array:
        """Read the array back without blocking the caller's event loop; see `numpy`."""
        return await await_or_offload(self.read_back)

    async def read_back(self) -> Array:
        """Read the array back; the coroutine behind `numpy` and `numpy_async`."""
        array = await self._read_array("read back")
        return array if array.flags.writeable else array.copy()

    async def _read_array(self, context: str) -> Array:
        """Read the array back; the result may be a read-only view."""
        context = f"{context} {self!r}"
        engine = self._buffer.engine
        return await engine.get(self.lying_on(engine, context))

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> Array:
        """Read the array back for NumPy; memory that need not move becomes a read-only
        view.

        Errors   those of `numpy`; ValueError for `copy=False` where that takes a copy.
        """
        array = run_blocking(self._read_array("read back"))
        needs_cast = dtype is not None and dtype != array.dtype
        if copy is False and (needs_cast or array.flags.writeable):
            raise ValueError(
                f"{self!r} cannot be converted to a NumPy array without a copy"
            )
        if needs_cast:
            return array.astype(dtype)
        return array.copy() if copy and not array.flags.writeable else array

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and number; raises CannotLend where it has
        none.
        """
        kind, device_number = self._lend("get the DLPack device of").__dlpack_device__()
        return int(kind), int(device_number)

    def __dlpack__(self, *, copy: bool | None = None, **asked: Any) -> Any:
        """Return a DLPack capsule of a copy on the same device, as other libraries may
        write into it.

        copy     False: of the very memory, which must then only be read
        asked    stream, max_version, dl_device: as the standard has them
        Errors   CannotLend where no other library can have it.
        """
        exporter = self._lend("lend", copy=copy is not False)
        return exporter.__dlpack__(**{k: v for k, v in asked.items() if v is not None})

    def _lend(self, context: str, copy: bool = False) -> Any:
        """Return an object through which other libraries can use the memory, or a copy
        of it.
        """
        engine = self._buffer.engine
        context = f"{context} {self!r}"
        exporter = self.lying_on(engine, context).lend(copy)
        if exporter is None:
            raise CannotLend(
                context,
                "no other library can use this memory",
                hint="read it back: x.numpy()",
            )
        return exporter

    def lying_on(self, engine: Engine, doing: str) -> DeviceBuffer:
        """Return the engine's buffer of this array.

        Errors   SessionClosed after `close`; DeviceLost; InputError where it lies
        elsewhere.
        """
        buffer = self._buffer
        if self._closed:
            hint = "upload it again with rlxweb.put"
            raise SessionClosed(doing, "the array was closed", hint=hint)
        if buffer.engine.lost:
            raise DeviceLost(
                doing,
                f"the array was lost with its device, {self.engine} "
                f"({buffer.engine.lost})",
                "data on a device has no copy on the host",
                f"upload it again: rlxweb.put(x, {self.device.label!r})",
            )
        if engine.lost:
            raise DeviceLost(doing, f"{engine.name} was lost ({engine.lost})")
        if not buffer.is_usable_by(engine):
            raise InputError(
                doing,
                f"the array is on device {self.device.label!r}, {self.engine}",
                f"the graph runs on {engine.name}"
                + (
                    ", which was opened separately"
                    if engine.name == self.engine
                    else ""
                ),
                "pass x.numpy(), or put the array on the device that runs the graph",
            )
        return buffer

    def close(self) -> None:
        """Free its memory; it cannot be used any more. Idempotent."""
        if not self._closed:
            self._closed = True
            buffer = self._buffer
            # An engine may have nothing to free but its own array, which goes with it.
            self._buffer = DeviceBuffer(buffer.engine, buffer.shape, buffer.dtype)
            buffer.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise Unsupported(
            f"pickle of a {self!r}",
            "it is device memory",
            hint="pickle x.numpy() instead",
        )


def put(x: Any, device: DeviceLike, adapter: str = "") -> DeviceArray:
    """Copy an array to a device, where it stays for runs to take.

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
    return run_blocking(_put(x, device, adapter))


async def put_async(x: Any, device: DeviceLike, adapter: str = "") -> DeviceArray:
    """Copy an array to a device without blocking the caller's event loop; see `put`."""
    return await await_or_offload(lambda: _put(x, device, adapter))


async def _put(x: Any, device: DeviceLike, adapter: str) -> DeviceArray:
    """Copy an array to a named device, opening it if needed."""
    if is_auto(device):
        raise UnknownDevice(
            "put",
            "'auto' is not a specific device",
            hint="pass the name of a device, or use compiled.put(x)",
        )
    target = parse_device(device)
    engine = await pool.engine_async(target.label, adapter)
    return await put_on_engine(engine, x, target, adapter)


async def put_on_engine(
    engine: Engine, x: Any, device: Device, adapter: str
) -> DeviceArray:
    """Copy an array to an open engine; see `put`."""
    context = f"put an array on {engine.name}"
    buffer = None
    if isinstance(x, DeviceArray):
        x = await x._read_array("move")
    elif isinstance(engine, ImportsDlpack) and _is_on_device(x):
        buffer = await engine.take(x)
    if buffer is None:
        buffer = await engine.put(_as_supported_array(engine, x, context))
    return DeviceArray(buffer, device, adapter)


def _is_on_device(x: Any) -> bool:
    """Return whether another library's array is outside host memory, by DLPack."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack_device__"):
        return False
    try:
        return int(x.__dlpack_device__()[0]) != _DLPACK_HOST
    except Exception:  # whatever another library raises; reading it says what is wrong
        return False


def _as_supported_array(engine: Engine, x: Any, context: str) -> Array:
    """Return the array in a dtype that the engine supports; raises DTypeError."""
    array = as_array(x, context, allow_bfloat16=True)
    dtype = as_dtype(array.dtype)
    supported = engine.target.array_dtypes
    if dtype not in supported and dtype not in engine.target.demotions:
        raise DTypeError(
            context,
            f"the array has dtype {dtype_name(array.dtype)}",
            f"this device supports {', '.join(sorted(d.label for d in supported))}",
            "cast the array: np.asarray(x, 'float32')",
        )
    return array.astype(dtype.numpy, copy=False)


def keep_mask(keep: Keep, count: int, context: str) -> tuple[bool, ...] | None:
    """Return for each output whether it stays on the device, or None if none does;
    raises UsageError.
    """
    if keep is False:
        return None
    if keep is True:
        return (True,) * count
    positions: list[object] = [None]
    if isinstance(keep, Iterable):
        positions = list(keep)
    if not all(
        type(position) is int and 0 <= position < count for position in positions
    ):
        raise UsageError(
            context,
            f"keep is {shown(keep)}",
            "keep must be True, False or a sequence of output positions, each 0 to "
            f"{count - 1}",
        )
    return (
        tuple(position in positions for position in range(count)) if positions else None
    )
