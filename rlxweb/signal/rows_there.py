"""Rows that lie on a device: looked at there, and given to its engine where they lie.

Before an estimate every row's energy must be known, and that all of it is finite. Two
sums per row are computed on the device and read back; samples are not, but for those of
a row that is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlxweb.advice import Advice
from rlxweb.backends.pool import pool
from rlxweb.choose.again import Lost, gone_with
from rlxweb.choose.chooser import Asked
from rlxweb.device import Device, DeviceLike, adapter_name, is_open, parse_device
from rlxweb.errors import DTypeError, InputError, NotFinite, ShapeError, Unsupported
from rlxweb.given import OnDevice
from rlxweb.stopping import check_stopped

if TYPE_CHECKING:  # whoever has one has loaded it
    from rlxweb.backends.protocol import Backend
    from rlxweb.runtime.compiled import CompiledGraph
    from rlxweb.runtime.device_array import DeviceArray
    from rlxweb.signal.scaled import Caller

Array = NDArray[Any]


class RowsThere:
    """Samples (…, T) of a DeviceArray, or rows of them [B, T].

    whole   the array
    shape   how it is looked at
    """

    __slots__ = ("shape", "whole")
    dtype = np.dtype(np.float32)

    def __init__(self, whole: DeviceArray, shape: tuple[int, ...]) -> None:
        self.whole, self.shape = whole, shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_on_cpu(self) -> bool:
        """Does it lie in the memory that NumPy computes in?"""
        return self.whole.device is Device.CPU

    def on_host(self, doing: str = "", why: str = "") -> Array:
        """The samples as NumPy's. Errors  Unsupported where they would have to move."""
        if self.is_on_cpu:
            return np.asarray(self.whole)
        hint = "pass x.numpy()"
        raise Unsupported(f"{doing} over {self.whole!r}", why, hint=hint)

    def as_rows(self, axis: int, doing: str) -> RowsThere:
        """[B, T]. Errors  ShapeError where time is not the last axis."""
        if axis != self.ndim - 1:
            raise ShapeError(
                doing,
                f"axis {axis} of {self.whole!r}",
                "on a device the time axis is the last",
                "put it there with its time axis last",
            )
        return RowsThere(self.whole, (prod(self.shape[:-1]), self.shape[-1]))

    async def some(self, engine: Backend, start: int, stop: int) -> RowsThere:
        """Rows [start, stop), with an array of their own over the same memory."""
        rows, width = self.shape
        shape = min(stop, rows) - start, width
        whole, doing = self.whole, f"run on rows of {self.whole!r}"
        if shape == whole.shape:
            return self
        part = await engine.part(whole.lying_on(engine, doing), start * width, shape)
        return RowsThere(type(whole)(part, whole.device, whole.adapter), shape)


def there(x: OnDevice, doing: str) -> RowsThere:
    """The samples of a DeviceArray.

    Errors   DTypeError for another type than a device takes; ShapeError for a single
    number.
    """
    from rlxweb.runtime.device_array import DeviceArray

    assert isinstance(x, DeviceArray)
    if not x.ndim:
        raise ShapeError(doing, "the signal is a single number", "rank >= 1")
    if x.device is not Device.CPU and x.dtype != np.float32:
        raise DTypeError(
            doing,
            f"the samples are {x!r}",
            "on a device they are float32",
            "put x.astype('float32') there",
        )
    return RowsThere(x, x.shape)


def asked_at(
    rows: RowsThere, device: DeviceLike | None, adapter: str, doing: str
) -> Asked:
    """The place where samples lie. Errors  InputError where another one is named."""
    x = rows.whole
    named = None if device is None or is_open(device) else parse_device(device)
    part = adapter_name(adapter)
    if named not in (None, x.device) or part not in ("", x.adapter):
        wanted = f"device {(named or x.device).label!r}"
        wanted += f", adapter {part!r}" if part else ""
        raise InputError(
            doing,
            f"the samples lie on device {x.device.label!r}, {x.engine}",
            f"it was asked to run on {wanted}"
            + (f", adapter {part!r}" if part else ""),
            "leave the device out, or pass x.numpy()",
        )
    return Asked(x.device, x.adapter, why="the samples lie there")


def sums(rows: Sequence[int], used: int) -> Any:
    """The graph: rows [B, T] → [B] sums of squares of the first `used`, [B] of |x|."""
    from rlxweb.ir.graph import Graph

    graph = Graph("energy of rows")
    x = graph.input("x", tuple(rows), "f32")
    read = x[:, :used]
    graph.set_outputs([graph.sum(read * read, 1), graph.sum(graph.abs(x), 1)])
    return graph


def refused_row(
    x: NDArray[Any], row: int, used: int, caller: Caller, nan: str
) -> Exception | None:
    """Why a row x (T,) cannot be computed where it lies; None where all of it is 0."""
    finite = np.isfinite(x)
    if not finite.all() and nan == "raise":
        at = int((~finite).argmax())
        return NotFinite(
            caller.doing,
            f"{caller.channel(row)} is {x[at]} at sample {at}",
            f"{int((~finite).sum())} of its {x.size} samples are not finite",
            Advice("repair the data, or pass x.numpy() and {}", nan="propagate"),
        )
    if not x[:used].any():
        return None
    what = "its squares leave the range of float32"
    return Unsupported(
        caller.doing,
        f"{caller.channel(row)} cannot be computed where it lies",
        what if finite.all() else "it has samples that are not finite",
        "pass x.numpy(): such rows are prepared on the host",
    )


def gone(error: Lost, rows: object, doing: str) -> Lost:
    """The loss of a device; where samples lay on it, of these."""
    if not isinstance(rows, RowsThere):
        return error
    named = gone_with(error, ["x"])
    named.doing = doing
    return named


async def energies(rows: RowsThere, used: int, step: int) -> tuple[Array, Array]:
    """(B,) sums of squares of the first `used` samples, (B,) of all |x|; float32.

    step   rows that are looked at in one run
    """
    whole = rows.whole
    engine = await pool.backend_async(whole.device.label, whole.adapter)
    found = []
    async with engine.turn:
        for at in range(0, rows.shape[0], step):
            check_stopped()
            part = await rows.some(engine, at, at + step)
            program = await _program(engine, whole, part.shape, used)
            found.append(await program.computed({"x": part.whole}, strict=True))
    squares, absolute = (np.concatenate(one) for one in zip(*found, strict=True))
    return squares, absolute


async def _program(
    engine: Backend, whole: DeviceArray, shape: tuple[int, ...], used: int
) -> CompiledGraph:
    from rlxweb.runtime.session import Session

    key = "energy of rows", shape, used
    program: CompiledGraph | None = engine.kept.get(key)
    if program is None:
        session = Session(whole.device, adapter=whole.adapter, strict=True)
        program = await session.compiled(sums(shape, used))
        engine.kept.put(key, program, program.nbytes)
        engine.kept.trim()
    return program


async def row_of(rows: RowsThere, row: int) -> Array:
    """One row (T,), read back."""
    engine = await pool.backend_async(rows.whole.device.label, rows.whole.adapter)
    one = await rows.some(engine, row, row + 1)
    return (await one.whole.read_back()).reshape(-1)
