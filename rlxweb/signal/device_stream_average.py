"""Running average of a stream on a device: samples are uploaded once, spectra are added
up there.

One graph for each segment: the samples that two segments share stay on the device, the
new ones go after them, the segment's power is added to what lies there, and the mean is
left for whoever reads it. What is small stays in the host's memory: weights, energies,
and which channels are no numbers. float32 there: a plain sum comes home every so many
segments and is added up in float64, so that hours lose nothing.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.cost.decision import Candidate
from rlxweb.engines.engine_caches import engine_caches
from rlxweb.engines.pool import pool
from rlxweb.ir.graph import Graph
from rlxweb.ops.welch.spec import WelchSpec
from rlxweb.signal.running_averages import FadingAverage, LastAverage, SpectraAverage
from rlxweb.signal.segment_spectra_operation import SegmentOperation
from rlxweb.signal.stream_frame import LazyMean

if TYPE_CHECKING:
    from rlxweb.engines.protocol import Engine
    from rlxweb.runtime.compiled_graph import CompiledGraph
    from rlxweb.runtime.device_array import DeviceArray

Array = NDArray[Any]

MAX_FLOAT32_SEGMENTS: Final = 64
"""Maximum number of spectra in a plain sum of float32 before it is copied to the host.
"""
MAX_DEVICE_BYTES: Final = 64 << 20
"""Maximum size of the spectra on a device, in bytes."""
_MIN_FLOAT32_SUM, _MAX_FLOAT32_SUM = 1e-30, 1e30
"""Sums between these, and 0, keep their digits in float32."""


class DeviceStreamAverage:
    """State of one stream on the engine of a candidate; created by `move_to_device`.

    segments   added since the average was last in the host's memory
    """

    def __init__(
        self,
        candidate: Candidate,
        engine: Engine,
        spec: WelchSpec,
        channel_state: SpectraAverage,
    ) -> None:
        self.candidate, self.engine = candidate, engine
        self._spec, self._channel_state = spec, channel_state
        self._host_sum: Array | None = None
        self._device_arrays: dict[str, DeviceArray] = {}
        self._tail_start = -1
        self.segments = 0
        self.mean: LazyMean | None = None

    @property
    def is_full(self) -> bool:
        """True where the sum must be copied to the host before more is added."""
        return self._host_sum is not None and self.segments >= MAX_FLOAT32_SEGMENTS

    @property
    def energy(self) -> NDArray[np.float64]:
        """Mean square (C,) of the samples."""
        return self._channel_state.mean(
            (len(self._channel_state.weights), 1), "float64"
        )[1]

    @classmethod
    async def move_to_device(
        cls,
        average: SpectraAverage,
        blank: SpectraAverage,
        spec: WelchSpec,
        channels: int,
        candidate: Candidate,
    ) -> DeviceStreamAverage | None:
        """Move an average to a device; return None where it does not fit there.

        Where float32 would not hold it, or where it is so much that it costs more to
        move within the device than to compute.

        blank   another average like it, of nothing
        """
        last_count = average.count if isinstance(average, LastAverage) else 0
        shape = (channels, last_count) if last_count else (channels,)
        if 4 * prod(shape) * spec.n_freqs > MAX_DEVICE_BYTES:
            return None
        name = "power" if last_count else "sum"
        state = dict(average.state())
        spectra = state[name] if state[name].size else np.zeros((*shape, spec.n_freqs))
        invalid = np.isnan(spectra).any(axis=-1, keepdims=True)
        spectra = np.where(invalid, 0.0, spectra)
        magnitude = np.abs(spectra)
        if (
            (magnitude > _MAX_FLOAT32_SUM)
            | ((magnitude > 0) & (magnitude < _MIN_FLOAT32_SUM))
        ).any():
            return None
        engine = await pool.engine_async(candidate.device.label, candidate.adapter)
        device_average = cls(candidate, engine, spec, blank)
        if state["energy"].size:
            blank.restore({**state, name: np.where(invalid, np.nan, 0.0)})
        if last_count:
            spectra = reorder_last_spectra(spectra, state["seen"], last_count, -1)
        elif isinstance(average, FadingAverage) and average.decay == 1.0:
            device_average._host_sum = spectra
            await device_average._upload("base", spectra)
            spectra = np.zeros_like(spectra)
        await device_average._upload(name, spectra)
        return device_average

    async def copy_to_host(self, average: SpectraAverage) -> None:
        """Copy the average into one of the host; raise DeviceLost."""
        state = dict(self._channel_state.state())
        if not state["energy"].size:
            return
        name = "power" if isinstance(average, LastAverage) else "sum"
        invalid = np.isnan(state[name])
        spectra = (await self._device_arrays[name].read_back()).astype(np.float64)
        if self._host_sum is not None:
            spectra += self._host_sum
        if isinstance(average, LastAverage):
            spectra = reorder_last_spectra(spectra, state["seen"], average.count, 1)
        average.restore({**state, name: np.where(invalid, np.nan, spectra)})

    async def add(
        self,
        rows: Array,
        first: int,
        energy: Array,
        invalid: NDArray[np.bool_] | None,
        skips_nan: bool,
    ) -> None:
        """Add one segment.

        rows    (C, n) its samples in float32, all finite
        first   which sample of the signal is its first
        energy  (C,) of its samples, (C,) `invalid`: which channels had one that was
                none
        """
        spec, channels = self._spec, len(rows)
        overlap = spec.nperseg - spec.hop
        if overlap > 0 and self._tail_start != first:
            await self._upload("tail", rows[:, :overlap])
        invalid_marks = np.zeros((channels, 1))
        if invalid is not None:
            invalid_marks[invalid] = np.nan
        previous_state = dict(self._channel_state.state())
        self._channel_state.add(invalid_marks, energy, invalid if skips_nan else None)
        included = (
            np.ones(channels, bool) if invalid is None or not skips_nan else ~invalid
        )
        try:
            await self._run_segment(rows[:, max(0, overlap) :], included)
        except BaseException:  # it was not added, so it is not counted
            self._channel_state.restore(previous_state)
            raise
        self._tail_start = first + spec.hop if overlap > 0 else -1
        self.segments += 1

    async def _run_segment(
        self, new_samples: Array, included: NDArray[np.bool_]
    ) -> None:
        """Run the graph of one segment, with the channels that are included."""
        channel_state = self._channel_state
        weights = channel_state.weights
        with np.errstate(divide="ignore"):
            inverse_weights = np.where(weights > 0, 1.0 / weights, 0.0)
        arrays = {
            "fresh": new_samples,
            "own": included[:, None],
            "share": inverse_weights[:, None],
        }
        if isinstance(channel_state, FadingAverage):
            arrays["keep"] = np.where(included, channel_state.decay, 1.0)[:, None]
        program = await self._get_program(new_samples.shape)
        feeds: dict[str, Any] = {
            name: np.ascontiguousarray(array, np.float32)
            for name, array in arrays.items()
        }
        async with engine_caches(self.engine).run_lock:
            outputs = await program.computed(
                feeds | self._device_arrays, strict=True, keep=True
            )
        mean = outputs[0]
        name = "power" if isinstance(channel_state, LastAverage) else "sum"
        self._device_arrays[name] = outputs[1]
        if "tail" in self._device_arrays:
            self._device_arrays["tail"] = outputs[2]
        self.mean = LazyMean(
            None, mean, channel_state.mean((len(included), 1), "float64")[0][:, 0]
        )

    async def _upload(self, name: str, array: Array) -> None:
        """Upload an array to the device as float32."""
        from rlxweb.runtime.device_array import put_on_engine

        single = np.ascontiguousarray(array, np.float32)
        candidate = self.candidate
        self._device_arrays[name] = await put_on_engine(
            self.engine, single, candidate.device, candidate.adapter
        )

    async def _get_program(self, shape: tuple[int, ...]) -> CompiledGraph:
        """Return the compiled graph of a segment from the engine's cache, compiling it
        if needed.
        """
        from rlxweb.runtime.session import Session

        call = SegmentOperation("power", self._spec)
        count = (
            self._channel_state.count
            if isinstance(self._channel_state, LastAverage)
            else 0
        )
        key = "stream", call.cache_key, shape, count, self._host_sum is None
        programs = engine_caches(self.engine).programs
        program: CompiledGraph | None = programs.get(key)
        if program is None:
            candidate = self.candidate
            session = Session(candidate.device, adapter=candidate.adapter, strict=True)
            graph = segment_graph(call, shape, count, self._host_sum is not None)
            program = await session.compiled(graph)
            programs.put(key, program, program.nbytes + call.nbytes)
            programs.evict()
        return program


def segment_graph(
    call: SegmentOperation, shape: tuple[int, ...], count: int, has_base: bool
) -> Graph:
    """Build the graph of a segment; its outputs are the mean, the updated sum or
    spectra, and the overlapping samples.

    shape     of the new samples
    count     of the spectra that are averaged; 0: a sum that may fade
    has_base  a sum from before is in the mean
    """
    channels, new_count = shape
    spec = call.spec
    graph = Graph("segment of a stream")
    rows = graph.input("fresh", shape, "f32")
    overlap = spec.nperseg - new_count
    if overlap:
        rows = graph.concat([graph.input("tail", (channels, overlap), "f32"), rows], 1)
    included = graph.input("own", (channels, 1), "f32")
    inverse_weights = graph.input("share", (channels, 1), "f32")
    bins = spec.n_freqs
    power = call.apply_op(graph, rows)
    if count:
        previous = graph.input("power", (channels, count, bins), "f32")
        shifted = graph.concat([previous[:, 1:], power], 1) if count > 1 else power
        is_included = graph.gt(graph.reshape(included, (channels, 1, 1)), 0.5)
        updated = graph.where(is_included, shifted, previous)
        mean = graph.sum(updated, 1) * inverse_weights
    else:
        previous = graph.input("sum", (channels, bins), "f32")
        decay = graph.input("keep", (channels, 1), "f32")
        updated = previous * decay + graph.reshape(power, (channels, bins)) * included
        total = (
            graph.input("base", (channels, bins), "f32") + updated
            if has_base
            else updated
        )
        mean = total * inverse_weights
    tail = [rows[:, spec.hop :]] if overlap else []
    graph.set_outputs([mean, updated, *tail])
    return graph


def reorder_last_spectra(
    spectra: Array, seen_counts: NDArray[Any], count: int, direction: int
) -> Array:
    """Reorder the last spectra (C, count, F) between the host's order and a device's.

    The host writes the n-th at n mod count, a device has the newest at the end.

    direction  1: from a device's order to the host's; -1: back
    """
    if not len(seen_counts):
        return spectra
    slots = np.arange(count)
    order = (slots - direction * np.asarray(seen_counts)[:, None]) % count
    return np.take_along_axis(spectra, order[..., None], axis=1)
