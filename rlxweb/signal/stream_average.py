"""Running average of a stream, in the host's memory or on a device.

It lies on a device that was named while segments come one by one. It comes home for
what a device does worse or not at all: many segments at once, samples beyond the range
of float32; and it is copied home for whoever keeps it in a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.core.device import Device
from rlxweb.core.errors import DeviceLost
from rlxweb.gpu.coroutine_runner import run_blocking
from rlxweb.ops.welch.cpu.spectrum import segment_view
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.select.chooser import PlaceRequest, is_device_named_by_env
from rlxweb.select.device_loss_retry import DEVICE_LOST
from rlxweb.signal.device_stream_average import DeviceStreamAverage
from rlxweb.signal.precision import resolve_precision
from rlxweb.signal.row_operation_runner import pick_candidate, run_row_operation
from rlxweb.signal.row_preparation import RowErrorContext
from rlxweb.signal.row_rescaling import RescaledRows, rescale_rows
from rlxweb.signal.segment_spectra_operation import SegmentOperation, restore_output
from rlxweb.signal.stream_frame import LazyMean
from rlxweb.signal.stream_settings import CONTEXT, StreamSettings

Array = NDArray[Any]
Energy = NDArray[np.float64]

MAX_DEVICE_SEGMENTS: Final = 32
"""Maximum number of segments of a push that a device takes one by one; more are
computed together.
"""


class StreamAverage:
    """Running average of a stream; used by one thread at a time.

    request   where it is computed; None: by NumPy
    segments  that are in it
    """

    def __init__(self, settings: StreamSettings, request: PlaceRequest | None) -> None:
        self._settings, self._request = settings, request
        self._may_use_device = request is not None and (
            request.named_place()[0] is not None or is_device_named_by_env()
        )
        self._caller = RowErrorContext(CONTEXT, (settings.n_channels,))
        self._skips_nan = settings.nan == "skip"
        self._host_average = settings.make_average()
        self.clear()

    def clear(self) -> None:
        """Forget all segments, and that a device was lost."""
        self._device_average: DeviceStreamAverage | None = None
        self._loss_reason, self._host_segments, self.segments = "", 0, 0
        self._host_average.clear()

    @property
    def device_name(self) -> str:
        """Name of the device that holds the average; "" in the host's memory."""
        return "" if self._device_average is None else self._device_average.engine.name

    def mean(self, dtype: str) -> tuple[LazyMean, Energy]:
        """Return the average (C, F) of all bins, and the mean square (C,) of its
        samples.
        """
        self.raise_if_lost()
        if self._device_average is not None and self._device_average.mean is not None:
            return self._device_average.mean, self._device_average.energy
        shape = self._settings.n_channels, len(self._settings.hz)
        power, energy = self._host_average.mean(shape, dtype)
        return LazyMean(power), energy

    async def add_segments(
        self, rows: Array, first: int, count: int, dtype: str
    ) -> list[tuple[LazyMean, Energy]]:
        """Add segments and return the average after each of them; the first begins at
        sample `first`.

        Errors   those of the device; `segments` says how many were added before.
        """
        spec = replace(self._settings.spec(dtype), n_segments=count)
        rescaled = rescale_rows(rows, dtype, self._caller, "propagate")
        segment_samples = segment_view(rows, spec.nperseg, spec.hop, count)
        with np.errstate(invalid="ignore", over="ignore"):
            energy = (
                np.einsum(
                    "csn,csn->cs", segment_samples, segment_samples, dtype=np.float64
                )
                / spec.nperseg
            )
        invalid = rescaled.invalid_segments(spec)
        device_average = await self._place_average(rescaled, spec)
        power = (
            await self._segment_powers(rescaled, spec)
            if device_average is None
            else None
        )
        means = []
        for s in range(count):
            invalid_channels = None if invalid is None else invalid[:, s]
            offset = s * spec.hop
            if power is not None:
                skipped = invalid_channels if self._skips_nan else None
                self._host_average.add(power[:, s], energy[:, s], skipped)
            elif device_average is not None:
                segment = rescaled.x[:, offset : offset + spec.nperseg]
                with self._record_device_loss():
                    await device_average.add(
                        segment,
                        first + offset,
                        energy[:, s],
                        invalid_channels,
                        self._skips_nan,
                    )
            self.segments += 1
            means.append(self.mean(dtype))
        return means

    async def _segment_powers(self, rescaled: RescaledRows, spec: WelchSpec) -> Array:
        """Return the power (C, S, F) of the segments."""
        call = SegmentOperation("power", spec)
        if self._request is None:
            out = call.compute_on_host(rescaled.x)
        else:
            sample_type = resolve_precision(
                rescaled.x.dtype, self._settings.precision, CONTEXT
            )
            out, _ = await run_row_operation(
                call, [rescaled.x], sample_type, self._request, CONTEXT, False
            )
        return restore_output(out, call, [rescaled], self._caller)

    async def _place_average(
        self, rescaled: RescaledRows, spec: WelchSpec
    ) -> DeviceStreamAverage | None:
        """Return the average on the device that takes these segments one by one.

        None: they are computed at once, and it is in the host's memory now.
        """
        is_single = spec.dtype == "float32" and not spec.host_only_reason
        is_too_many = spec.n_segments is None or spec.n_segments > MAX_DEVICE_SEGMENTS
        if (
            not self._may_use_device
            or not is_single
            or is_too_many
            or rescaled.exponents is not None
        ):
            await self.copy_to_host()
            self._device_average = None
            return None
        if self._device_average is not None and self._device_average.is_full:
            await self.copy_to_host()
            self._device_average = None
        if self._device_average is None:
            segment_spec = replace(spec, n_segments=1)
            rows = len(rescaled.x)
            call = SegmentOperation("power", segment_spec)
            shapes = ((rows, spec.nperseg),)
            assert self._request is not None
            candidate = await pick_candidate(call, shapes, self._request)
            if candidate.device is Device.CPU:
                return None
            blank = self._settings.make_average()
            self._device_average = await DeviceStreamAverage.move_to_device(
                self._host_average, blank, segment_spec, rows, candidate
            )
            self._host_segments = self.segments
        return self._device_average

    async def copy_to_host(self) -> None:
        """Copy the average from the device into the host's memory; the device keeps it
        too.
        """
        self.raise_if_lost()
        if self._device_average is not None:
            with self._record_device_loss():
                await self._device_average.copy_to_host(self._host_average)
            self._host_segments = self.segments

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle and `copy`: a copy begins in the host's
        memory.
        """
        run_blocking(self.copy_to_host())
        return {**self.__dict__, "_device_average": None}

    def state(self) -> dict[str, Array]:
        """Return the arrays of the host's average by name, as of the last
        `copy_to_host`.
        """
        return dict(self._host_average.state())

    def restore(self, state: dict[str, Array], segments: int) -> None:
        """Restore the arrays that `state` returned; raise KeyError for a missing
        one.
        """
        self._host_average.restore(state)
        self.segments = self._host_segments = segments

    @contextmanager
    def _record_device_loss(self) -> Iterator[None]:
        """Context manager that records the loss of the device as the loss of the
        average.
        """
        try:
            yield
        except DEVICE_LOST as error:
            self._loss_reason = str(error)
            self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raise DeviceLost where the average was lost with its device."""
        if self._loss_reason:
            raise DeviceLost(
                CONTEXT,
                f"the average was lost with its device ({self._loss_reason})",
                f"it contained {self.segments} segments, "
                f"{self.segments - self._host_segments} of them not yet copied to "
                "host memory",
                "resume from a saved state with WelchStream.load(path), or call "
                "reset()",
            )
