"""A stream's average on a device: samples go there once, spectra are added up there.

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

from rlxweb.backends.pool import pool
from rlxweb.decision.candidate import Candidate
from rlxweb.host.spec import WelchSpec
from rlxweb.ir.graph import Graph
from rlxweb.signal.averages import FadingAverage, LastAverage, SpectraAverage
from rlxweb.signal.segment_calls import SegmentCall
from rlxweb.signal.stream_frame import Mean

if TYPE_CHECKING:
    from rlxweb.backends.protocol import Backend
    from rlxweb.runtime.compiled import CompiledGraph
    from rlxweb.runtime.device_array import DeviceArray

Array = NDArray[Any]

MOST_ADDED: Final = 64
"""Spectra that a plain sum of float32 takes before it comes home."""
MOST_BYTES: Final = 64 << 20
"""Of the spectra that lie on a device."""
_LEAST, _MOST = 1e-30, 1e30
"""Sums between these, and 0, keep their digits in float32."""


class AverageThere:
    """The state of one stream on the engine of a way. Made by `moved`.

    segments   added since the average was last in the host's memory
    """

    def __init__(
        self, way: Candidate, backend: Backend, spec: WelchSpec, marks: SpectraAverage
    ) -> None:
        self.way, self.backend = way, backend
        self._spec, self._marks = spec, marks
        self._base: Array | None = None
        self._held: dict[str, DeviceArray] = {}
        self._tail_at = -1
        self.segments = 0
        self.mean: Mean | None = None

    @property
    def is_full(self) -> bool:
        """Is it to come home before more is added?"""
        return self._base is not None and self.segments >= MOST_ADDED

    @property
    def energy(self) -> NDArray[np.float64]:
        """(C,) the mean square of its samples."""
        return self._marks.mean((len(self._marks.weights), 1), "float64")[1]

    @classmethod
    async def moved(
        cls,
        average: SpectraAverage,
        blank: SpectraAverage,
        spec: WelchSpec,
        channels: int,
        way: Candidate,
    ) -> AverageThere | None:
        """What `average` holds, there; None where that would not do.

        Where float32 would not hold it, or where it is so much that it costs more to
        move within the device than to compute.

        blank   another average like it, of nothing
        """
        last = average.count if isinstance(average, LastAverage) else 0
        shape = (channels, last) if last else (channels,)
        if 4 * prod(shape) * spec.n_freqs > MOST_BYTES:
            return None
        name = "power" if last else "sum"
        state = dict(average.state())
        held = state[name] if state[name].size else np.zeros((*shape, spec.n_freqs))
        lost = np.isnan(held).any(axis=-1, keepdims=True)
        held = np.where(lost, 0.0, held)
        size = np.abs(held)
        if ((size > _MOST) | ((size > 0) & (size < _LEAST))).any():
            return None
        backend = await pool.backend_async(way.device.label, way.adapter)
        made = cls(way, backend, spec, blank)
        if state["energy"].size:
            blank.restore({**state, name: np.where(lost, np.nan, 0.0)})
        if last:
            held = turned(held, state["seen"], last, -1)
        elif isinstance(average, FadingAverage) and average.keep == 1.0:
            made._base = held
            await made._put("base", held)
            held = np.zeros_like(held)
        await made._put(name, held)
        return made

    async def home(self, average: SpectraAverage) -> None:
        """Bring what lies there into an average of the host. Errors  DeviceLost."""
        state = dict(self._marks.state())
        if not state["energy"].size:
            return
        name = "power" if isinstance(average, LastAverage) else "sum"
        lost = np.isnan(state[name])
        held = (await self._held[name].read_back()).astype(np.float64)
        if self._base is not None:
            held += self._base
        if isinstance(average, LastAverage):
            held = turned(held, state["seen"], average.count, 1)
        average.restore({**state, name: np.where(lost, np.nan, held)})

    async def add(
        self,
        rows: Array,
        first: int,
        energy: Array,
        lost: NDArray[np.bool_] | None,
        skips: bool,
    ) -> None:
        """One more segment.

        rows    (C, n) its samples in float32, all finite
        first   which sample of the signal is its first
        energy  (C,) of its samples, (C,) `lost`: which channels had one that was none
        """
        spec, channels = self._spec, len(rows)
        stays = spec.nperseg - spec.hop
        if stays > 0 and self._tail_at != first:
            await self._put("tail", rows[:, :stays])
        marked = np.zeros((channels, 1))
        if lost is not None:
            marked[lost] = np.nan
        before = dict(self._marks.state())
        self._marks.add(marked, energy, lost if skips else None)
        own = np.ones(channels, bool) if lost is None or not skips else ~lost
        try:
            await self._step(rows[:, max(0, stays) :], own)
        except BaseException:  # it was not added, so it is not counted
            self._marks.restore(before)
            raise
        self._tail_at = first + spec.hop if stays > 0 else -1
        self.segments += 1

    async def _step(self, fresh: Array, own: NDArray[np.bool_]) -> None:
        marks = self._marks
        weights = marks.weights
        with np.errstate(divide="ignore"):
            share = np.where(weights > 0, 1.0 / weights, 0.0)
        given = {"fresh": fresh, "own": own[:, None], "share": share[:, None]}
        if isinstance(marks, FadingAverage):
            given["keep"] = np.where(own, marks.keep, 1.0)[:, None]
        program = await self._program(fresh.shape)
        feeds: dict[str, Any] = {
            name: np.ascontiguousarray(one, np.float32) for name, one in given.items()
        }
        async with self.backend.turn:
            outs = await program.computed(feeds | self._held, strict=True, keep=True)
        mean, name = outs[0], "power" if isinstance(marks, LastAverage) else "sum"
        self._held[name] = outs[1]
        if "tail" in self._held:
            self._held["tail"] = outs[2]
        self.mean = Mean(None, mean, marks.mean((len(own), 1), "float64")[0][:, 0])

    async def _put(self, name: str, array: Array) -> None:
        from rlxweb.runtime.device_array import put_on

        single = np.ascontiguousarray(array, np.float32)
        way = self.way
        self._held[name] = await put_on(self.backend, single, way.device, way.adapter)

    async def _program(self, shape: tuple[int, ...]) -> CompiledGraph:
        from rlxweb.runtime.session import Session

        call = SegmentCall("power", self._spec)
        count = self._marks.count if isinstance(self._marks, LastAverage) else 0
        key = "stream", call.key, shape, count, self._base is None
        program: CompiledGraph | None = self.backend.kept.get(key)
        if program is None:
            way = self.way
            session = Session(way.device, adapter=way.adapter, strict=True)
            graph = step(call, shape, count, self._base is not None)
            program = await session.compiled(graph)
            self.backend.kept.put(key, program, program.nbytes + call.nbytes)
            self.backend.kept.trim()
        return program


def step(
    call: SegmentCall, shape: tuple[int, ...], count: int, has_base: bool
) -> Graph:
    """The graph of a segment: mean, what is added up, and the samples that stay.

    shape     of the new samples
    count     of the spectra that are averaged; 0: a sum that may fade
    has_base  a sum from before is in the mean
    """
    channels, new = shape
    spec = call.spec
    graph = Graph("segment of a stream")
    rows = graph.input("fresh", shape, "f32")
    stays = spec.nperseg - new
    if stays:
        rows = graph.concat([graph.input("tail", (channels, stays), "f32"), rows], 1)
    own = graph.input("own", (channels, 1), "f32")
    share = graph.input("share", (channels, 1), "f32")
    bins = spec.n_freqs
    power = call.applied(graph, rows)
    if count:
        held = graph.input("power", (channels, count, bins), "f32")
        moved = graph.concat([held[:, 1:], power], 1) if count > 1 else power
        takes = graph.gt(graph.reshape(own, (channels, 1, 1)), 0.5)
        grown = graph.where(takes, moved, held)
        mean = graph.sum(grown, 1) * share
    else:
        held = graph.input("sum", (channels, bins), "f32")
        keep = graph.input("keep", (channels, 1), "f32")
        grown = held * keep + graph.reshape(power, (channels, bins)) * own
        whole = (
            graph.input("base", (channels, bins), "f32") + grown if has_base else grown
        )
        mean = whole * share
    tail = [rows[:, spec.hop :]] if stays else []
    graph.set_outputs([mean, grown, *tail])
    return graph


def turned(held: Array, seen: NDArray[Any], count: int, way: int) -> Array:
    """The last spectra (C, count, F), between two orders.

    The host writes the n-th at n mod count, a device has the newest at the end.

    way   1: from a device's order to the host's; -1: back
    """
    if not len(seen):
        return held
    places = np.arange(count)
    order = (places - way * np.asarray(seen)[:, None]) % count
    return np.take_along_axis(held, order[..., None], axis=1)
