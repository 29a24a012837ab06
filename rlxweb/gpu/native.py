"""The GPU port over wgpu-py, or over wgpudawn, which has the same interface.

Owns what they leave open: the deadline (their waits have none), the loss of a device
(it is only logged) and the mapping of their errors to those of `rlxweb.errors`. Blocks
inside its coroutines and never suspends. Knows buffers and commands, no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from rlxweb.errors import (
    DeviceError,
    DeviceLost,
    GpuTimeout,
    RlxError,
    ShaderRejected,
)
from rlxweb.forked import ForkLock, watch
from rlxweb.gpu import adapters as choice
from rlxweb.gpu import rules
from rlxweb.gpu.binding import Binder
from rlxweb.gpu.books import Books, Tables
from rlxweb.gpu.drivers import drivers, leak
from rlxweb.gpu.libraries import Library, natives, shader_compiler
from rlxweb.gpu.mapping import Bytes, Mapper
from rlxweb.gpu.port import STAMPS, Access, Command, DeviceFacts, Usage, Want
from rlxweb.gpu.quick import Encoded, Quick, quick
from rlxweb.gpu.readback import Reader
from rlxweb.gpu.staging import Uploads
from rlxweb.gpu.stamps import device_ns
from rlxweb.gpu.translate import translate
from rlxweb.gpu.unchecked import unchecked_module
from rlxweb.gpu.waiting import Waits
from rlxweb.limits import Limits

LARGE = 1 << 20
"""Bytes of a write from which it goes through mapped memory, not by the queue."""
IN_PLACE = "mappable-primary-buffers"
"""wgpu's feature of storage buffers that the host maps: Dawn has none."""
_USAGES: dict[Usage, str] = {
    "storage": "STORAGE|COPY_SRC|COPY_DST",
    "uniform": "UNIFORM|COPY_DST",
    "readback": "MAP_READ|COPY_DST",
}


@cache
def _stuck() -> list[Any]:
    """OpenGL adapters of this process that hang: touching one again would abort it."""
    return []


class NativePort(Books):
    """The nine verbs over one wgpu device. Thread-safe: one lock around each verb.

    `created` counts the driver objects made so far; `lost` says why the device is lost,
    and is empty while it is not. `library` is what serves it. `in_place` says whether
    large inputs are mapped and written where they lie, without a copy: only if asked
    for, and where the device computes in the host's memory and maps storage buffers.
    Other large writes go through staging buffers. Buffers made from then on follow a
    change of `in_place`, which an open port may undergo where `maps` is true.
    """

    def __init__(
        self,
        deadline_s: float = 30.0,
        library: Library = "wgpu",
        in_place: bool = True,
    ) -> None:
        super().__init__(deadline_s, "buffers", "pipelines", "bind_groups")
        self.library = library
        self.in_place, self.maps = in_place, False
        self._lock = ForkLock()
        self._hung = False
        self._adapter: Any = None
        self._device: Any = None
        self._quick: Quick | None = None
        self._binder: Any = None
        self._reader: Any = None
        self._uploads: Any = None
        self._in_place: set[int] = set()
        self._waits = Waits(lambda: self.deadline_s)
        # The handles of the last submission while it may still run, and the handles
        # written since: writes go out with the next submission.
        self._running = _IDLE
        self._written: set[int] = set()
        watch(self, NativePort._in_child)

    @property
    def compiler(self) -> str:
        return shader_compiler(self.library)

    @property
    def _at_once(self) -> int | None:
        """Dispatches of one submission, of a longer list; None: all of them.

        A device works while the next are encoded, but OpenGL has no queue.
        """
        return None if self.facts.backend == "opengl" else PIECE

    def _in_child(self) -> None:
        """A fork has none of the driver's threads: whatever touches it may hang."""
        if self._device is not None and not self._closed:
            self.lost = drivers.why_not
            self._leak()

    async def open(self, want: Want) -> DeviceFacts:
        with self._lock:
            self._check_opening(self._device)
            passed: list[tuple[str, str]] = []
            gone: RlxError | None = None
            for facts, native, why in choice.asked(natives(self.library), want):
                if native in _stuck():
                    why = "it hangs in this process since an earlier time-out"
                try:
                    if not why:
                        return await self._take(facts, native, want)
                except RlxError as error:
                    why = str(error)
                    gone = error if isinstance(error, DeviceLost | GpuTimeout) else gone
                    self._drop()
                    self.lost, self._facts = "", None
                passed.append((f"{facts.name} ({facts.backend})", why))
            raise gone or choice.missing(want, passed)

    def buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        with self._lock:
            self._check_open("buffer")
            made = rules.check_buffer(nbytes, usage, self.facts.limits)
            kind = _USAGES[usage]
            mapped = is_fed and made.nbytes >= LARGE and self.in_place
            if mapped:
                kind += "|MAP_WRITE"
            with self._ours(f"buffer of {nbytes} bytes ({usage})"):
                native = self._device.create_buffer(size=made.nbytes, usage=kind)
            handle = self._handle("buffers")
            self._tables.buffers[handle] = native
            self._tables.sizes[handle] = made
            if mapped:
                self._in_place.add(handle)
            return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        with self._lock:
            self._check_open("write")
            flat, tail = rules.check_write(handle, offset, data, self._tables.sizes)
            with self._ours(f"write {data.nbytes} bytes to buffer {handle}"):
                if flat.nbytes >= LARGE:
                    self._upload(handle, offset, np.frombuffer(flat, np.uint8))
                elif flat.nbytes:
                    self._write(handle, offset, flat)
                if tail:
                    self._write(handle, offset + flat.nbytes, tail)

    async def pipeline(
        self,
        source: str,
        layout: Sequence[Access],
        constants: Mapping[str, float],
        *,
        checked: bool = True,
    ) -> int:
        with self._lock:
            self._check_open("pipeline")
            order = tuple(layout)
            rules.check_pipeline(source, order, constants, self.facts.limits)
            with self._ours("compile a shader", ShaderRejected, source):
                module = None if checked else unchecked_module(self._device, source)
                if module is None:
                    module = self._device.create_shader_module(code=source)
                native = self._device.create_compute_pipeline(
                    layout=self._binder.pipeline_layout(order),
                    compute={
                        "module": module,
                        "entry_point": "main",
                        "constants": dict(constants),
                    },
                )
            handle = self._handle("pipelines")
            self._tables.pipelines[handle] = native
            self._tables.layouts[handle] = order
            return handle

    def submit(self, *lists: Sequence[Command]) -> None:
        with self._lock:
            self._check_open("submit")
            with self._ours(f"submit {sum(map(len, lists))} commands"):
                limits = self.facts.limits
                pieces, handles = self._binder.pieces(lists, limits, self._at_once)
                for encoded in pieces:
                    self._queue(encoded, handles)

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        with self._lock:
            self._check_open("read")
            facts = rules.check_read(handle, offset, nbytes, self._tables.sizes)
            out = np.empty(nbytes, np.uint8)
            # A failed map means the device is gone or cannot be trusted any more.
            with self._ours(f"read {nbytes} bytes of buffer {handle}", DeviceLost):
                native = self._tables.buffers[handle]
                if nbytes == 0 or handle in self._written:
                    self._drain()
                if nbytes and facts.usage == "readback":
                    self._reader.from_readback(native, offset, out)
                    if handle in self._running:
                        self._running = _IDLE
                elif nbytes:
                    self._reader.from_storage(native, offset, out)
                    self._running = _IDLE
            return out.data

    async def timed(self, lists: Sequence[Sequence[Command]]) -> tuple[int, ...]:
        with self._lock:
            self._check_open("timed")
            limits = self.facts.limits
            with self._ours(f"time {len(lists)} lists of commands", DeviceLost):
                if STAMPS not in self.facts.features:
                    return await super().timed(lists)
                ready = self._device, self._binder, self._reader, self._queue
                found = device_ns(*ready, lists, limits)
                self._running = _IDLE
                return found

    def destroy(self, handle: int) -> None:
        with self._lock:
            self._check_destroy(handle)
            if not self.lost:
                self._finish_waits("destroy")
            self._binder.forget(handle)
            made = self._tables.sizes.get(handle)
            native = self._tables.forget(handle)
            if native is not None and not self.lost:
                native.destroy()
                self._in_place.discard(handle)
                if made is not None and made.nbytes >= LARGE:
                    self._free_stages()

    def _free_stages(self) -> None:
        """Staging buffers last no longer than the large buffers they serve."""
        if all(one.nbytes < LARGE for one in self._tables.sizes.values()):
            self._uploads.free()
            self._reader.free()

    async def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                # Freeing a busy device waits inside the driver, where no deadline
                # reaches; so wait here, and abandon a device that does not answer.
                if self._device is not None and not self.lost:
                    with self._ours("close", DeviceLost):
                        self._waits.finish()
                        self._drain()
            except (DeviceLost, GpuTimeout) as error:
                self.lost = self.lost or str(error)
            except BaseException:
                self._hung = True
                raise
            finally:
                self._drop()

    async def _take(self, facts: DeviceFacts, native: Any, want: Want) -> DeviceFacts:
        self._adapter = native
        features = facts.features & frozenset(want.features)
        mappable = {IN_PLACE} & facts.features if facts.shared else set[str]()
        self.maps = bool(mappable)
        self.in_place = self.in_place and self.maps
        asked = choice.limits_to_ask(want.limits, facts.limits)

        def request() -> None:
            self._device = native.request_device_sync(
                required_features=sorted(features | mappable),
                required_limits={
                    f.name.replace("_", "-"): getattr(asked, f.name)
                    for f in fields(Limits)
                },
            )

        with self._ours(f"open {facts.name} ({facts.backend})"):
            # Under the deadline too: wgpu polls every device of the process here, and
            # one of them may hang.
            self._waits.call(request)
            granted = choice.limits_of(self._device.limits)
        if self.library == "wgpu":
            self._quick = quick(self._device, self._waits)
        mapper = Mapper(self._waits, self.library == "wgpu")

        def submit(encoded: Any) -> None:
            self._queue(encoded, _STAGED)

        self._reader = Reader(self._device, mapper, submit, self._quick)
        self._uploads = Uploads(self._device, mapper, submit)
        ours = self._tables, self.created, self._quick
        self._binder = Binder(self._device, *ours)
        return await self._proven(facts, features, granted, want)

    def _drop(self) -> None:
        """Let go of every native object; of a device that hangs, without freeing it."""
        if self._hung:
            self._leak()
            if self._adapter.info["backend_type"].startswith("OpenGL"):
                _stuck().append(self._adapter)
        elif not self.lost and self._device is not None:
            # Stops wgpu's poll thread and frees the memory at once; the device object
            # itself is in a reference cycle and goes with the next collection.
            self._device.destroy()
        self._adapter = self._device = self._binder = None
        self._reader = self._uploads = self._quick = None
        self._in_place.clear()
        self._tables, self._waits = Tables(), Waits(lambda: self.deadline_s)
        self._running, self._hung = _IDLE, False
        self._written.clear()

    def _leak(self) -> None:
        held = [self._device, self._tables, self._binder, self._reader, self._waits]
        leak([*held, self._uploads, self._quick, self._adapter])

    def _check_open(self, verb: str) -> None:
        self._check_usable(verb, self._device)
        self._finish_waits(verb)

    def _finish_waits(self, verb: str) -> None:
        with self._ours(f"{verb} after an interruption", DeviceLost):
            self._waits.finish()

    def _write(self, handle: int, offset: int, data: memoryview | bytes) -> None:
        """By the queue: it goes out with the next submission."""
        native = self._tables.buffers[handle]
        if self._quick is not None:
            self._quick.write(native, offset, data)
        else:
            self._device.queue.write_buffer(native, offset, data)
        self._written.add(handle)

    def _upload(self, handle: int, offset: int, data: Bytes) -> None:
        """Many whole words, through mapped memory."""
        native = self._tables.buffers[handle]
        # What the queue has not sent yet must not come after this.
        if handle in self._in_place and handle not in self._written:
            self._uploads.in_place(native, offset, data)
        else:
            self._uploads.staged(native, offset, data)

    def _queue(self, encoded: Any, handles: frozenset[int]) -> None:
        # An idle device takes a submission at once, except OpenGL, which runs it then
        # and there; a busy one may block until it is idle. Pieces of one list follow
        # on each other, on devices that have a queue of their own.
        takes = self._running is _IDLE or self._running is handles
        self._running = handles
        self._written.clear()
        if takes and self.facts.backend != "opengl":
            self._submit(encoded)
        else:
            self._waits.call(lambda: self._submit(encoded))

    def _submit(self, encoded: Any) -> None:
        if self._quick is not None and isinstance(encoded, Encoded):
            self._quick.submit(encoded)
        else:
            self._device.queue.submit([encoded])

    def _drain(self) -> None:
        self._reader.drain()
        self._running = _IDLE

    @contextmanager
    def _ours(
        self, doing: str, otherwise: type[DeviceError] = DeviceError, source: str = ""
    ) -> Iterator[None]:
        """Turn whatever wgpu raises into one of our errors."""
        try:
            yield
        except GpuTimeout:
            self._hung = True
            self.lost = f"it did not answer within {self.deadline_s:g} s"
            raise
        except RlxError:
            raise
        except Exception as error:
            ours = translate(error, doing, otherwise, source)
            if isinstance(ours, DeviceLost):
                self.lost = self.lost or ours.problem.splitlines()[-1].strip()
            raise ours from error


PIECE = 24
"""Dispatches of a piece of a long list. On an H200 the 70 of MiniLM of 1 by 32 tokens
take 1.71 ms in one, 1.52 in pieces of 48, 1.32 in pieces of 24 or 16, 1.35 of 8.
"""
_IDLE = frozenset({0})
_STAGED: frozenset[int] = frozenset()
