"""Rows that are resident on a device: checked there, and passed to its engine without a
copy to the host.

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

from rlxweb.core.array_coercion import DeviceResident
from rlxweb.core.device import (
    Device,
    DeviceLike,
    check_adapter_name,
    is_auto,
    parse_device,
)
from rlxweb.core.errors import (
    DTypeError,
    InputError,
    NotFinite,
    ShapeError,
    Unsupported,
)
from rlxweb.core.message_text import Advice
from rlxweb.core.thread_tasks import raise_if_cancelled
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.pool import pool
from rlxweb.select.chooser import PlaceRequest
from rlxweb.select.device_loss_retry import DeviceLossError, lost_data_error

if TYPE_CHECKING:  # whoever has one has loaded it
    from rlxweb.engines.protocol import Engine
    from rlxweb.runtime.compiled_graph import CompiledGraph
    from rlxweb.runtime.device_array import DeviceArray
    from rlxweb.signal.row_preparation import RowErrorContext

Array = NDArray[Any]


class DeviceRows:
    """Samples (…, T) of a DeviceArray, or rows of them [B, T].

    array   the array
    shape   how it is looked at
    """

    __slots__ = ("array", "shape")
    dtype = np.dtype(np.float32)

    def __init__(self, array: DeviceArray, shape: tuple[int, ...]) -> None:
        self.array, self.shape = array, shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_on_cpu(self) -> bool:
        """True when the samples are in the memory that NumPy computes in."""
        return self.array.device is Device.CPU

    def to_host(self, context: str = "", reason: str = "") -> Array:
        """Return the samples as a NumPy array. Raises Unsupported where they would have
        to be copied from a device.
        """
        if self.is_on_cpu:
            return np.asarray(self.array)
        hint = "pass x.numpy()"
        raise Unsupported(f"{context} of {self.array!r}", reason, hint=hint)

    def as_rows(self, axis: int, context: str) -> DeviceRows:
        """Return the samples as rows [B, T]. Raises ShapeError where time is not the
        last axis.
        """
        if axis != self.ndim - 1:
            raise ShapeError(
                context,
                f"axis is {axis} for {self.array!r}",
                "time must be the last axis of samples on a device",
                "put the array on the device with its time axis last",
            )
        return DeviceRows(self.array, (prod(self.shape[:-1]), self.shape[-1]))

    async def slice_rows(self, engine: Engine, start: int, stop: int) -> DeviceRows:
        """Return rows [start, stop) as an array over the same device memory."""
        rows, width = self.shape
        shape = min(stop, rows) - start, width
        array, context = self.array, f"run on rows of {self.array!r}"
        if shape == array.shape:
            return self
        part = array.lying_on(engine, context).part(start * width, shape)
        return DeviceRows(type(array)(part, array.device, array.adapter), shape)


def as_device_rows(x: DeviceResident, context: str) -> DeviceRows:
    """Return the samples of a DeviceArray as rows on its device.

    Errors   DTypeError for another type than a device takes; ShapeError for a single
    number.
    """
    from rlxweb.runtime.device_array import DeviceArray

    assert isinstance(x, DeviceArray)
    if not x.ndim:
        raise ShapeError(context, "the signal is a single number", "expected rank >= 1")
    if x.device is not Device.CPU and x.dtype != np.float32:
        raise DTypeError(
            context,
            f"the samples are {x!r}",
            "samples on any device except the CPU must be float32",
            "put x.numpy().astype('float32') on the device",
        )
    return DeviceRows(x, x.shape)


def place_request_for(
    rows: DeviceRows, device: DeviceLike | None, adapter: str, context: str
) -> PlaceRequest:
    """Return the request for the device on which the samples are. Raises InputError
    where the caller names another one.
    """
    x = rows.array
    requested_device = (
        None if device is None or is_auto(device) else parse_device(device)
    )
    requested_adapter = check_adapter_name(adapter)
    if requested_device not in (None, x.device) or requested_adapter not in (
        "",
        x.adapter,
    ):
        request_text = f"device {(requested_device or x.device).label!r}"
        if requested_adapter:
            request_text += f" with adapter {requested_adapter!r}"
        raise InputError(
            context,
            f"the samples are on device {x.device.label!r}, {x.engine}",
            f"{request_text} was requested",
            "leave the device out, or pass x.numpy()",
        )
    return PlaceRequest(x.device, x.adapter, why="the samples are on this device")


def energy_graph(rows: Sequence[int], n_used: int) -> Any:
    """Return the graph: rows [B, T] → [B] sums of squares of the first `n_used`
    samples, [B] sums of |x|.
    """
    from rlxweb.ir.graph import Graph

    graph = Graph("energy of rows")
    x = graph.input("x", tuple(rows), "f32")
    used_samples = x[:, :n_used]
    graph.set_outputs(
        [graph.sum(used_samples * used_samples, 1), graph.sum(graph.abs(x), 1)]
    )
    return graph


def row_error(
    x: NDArray[Any], row: int, n_used: int, caller: RowErrorContext, nan: str
) -> Exception | None:
    """Return the error for a row x (T,) that cannot be computed on its device; None
    where all used samples are 0.
    """
    finite = np.isfinite(x)
    if not finite.all() and nan == "raise":
        first_bad = int((~finite).argmax())
        return NotFinite(
            caller.context,
            f"{caller.channel(row)} is {x[first_bad]} at sample {first_bad}",
            f"{int((~finite).sum())} of its {x.size} samples are not finite",
            Advice("repair the data, or pass x.numpy() and {}", nan="propagate"),
        )
    if not x[:n_used].any():
        return None
    problem = "the squares of the channel's samples are outside the range of float32"
    return Unsupported(
        caller.context,
        f"the result for {caller.channel(row)} cannot be computed on the device",
        problem if finite.all() else "some of the channel's samples are not finite",
        "pass x.numpy() to prepare the samples on the host",
    )


def describe_device_loss(
    error: DeviceLossError, rows: object, context: str
) -> DeviceLossError:
    """Return the error for a lost device; where the samples were on it, it names them
    as lost too.
    """
    if not isinstance(rows, DeviceRows):
        return error
    input_error = lost_data_error(error, ["x"])
    input_error.doing = context
    return input_error


async def compute_row_energies(
    rows: DeviceRows, n_used: int, step: int
) -> tuple[Array, Array]:
    """Return (B,) sums of squares of the first `n_used` samples and (B,) sums of all
    |x|, in float32.

    step   rows that are looked at in one run
    """
    array = rows.array
    engine = await pool.engine_async(array.device.label, array.adapter)
    outputs = []
    async with engine_caches(engine).run_lock:
        for start in range(0, rows.shape[0], step):
            raise_if_cancelled()
            part = await rows.slice_rows(engine, start, start + step)
            program = await _get_energy_program(engine, array, part.shape, n_used)
            outputs.append(await program.computed({"x": part.array}, strict=True))
    squares, absolute = (
        np.concatenate(column) for column in zip(*outputs, strict=True)
    )
    return squares, absolute


async def _get_energy_program(
    engine: Engine, array: DeviceArray, shape: tuple[int, ...], n_used: int
) -> CompiledGraph:
    """Return the compiled energy graph, cached by the engine."""
    from rlxweb.runtime.session import Session

    key = "energy of rows", shape, n_used
    programs = engine_caches(engine).programs
    program: CompiledGraph | None = programs.get(key)
    if program is None:
        session = Session(array.device, adapter=array.adapter, strict=True)
        program = await session.compiled(energy_graph(shape, n_used))
        programs.put(key, program, program.nbytes)
        programs.evict()
    return program


async def read_row(rows: DeviceRows, row: int) -> Array:
    """Read one row (T,) back from the device."""
    engine = await pool.engine_async(rows.array.device.label, rows.array.adapter)
    row_slice = await rows.slice_rows(engine, row, row + 1)
    return (await row_slice.array.read_back()).reshape(-1)
