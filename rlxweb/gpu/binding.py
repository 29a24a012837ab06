"""Command lists made ready for a wgpu device: checked, bound, and encoded.

Bind groups are made once per set of ranges and kept until a buffer in them goes, so a
second submission of the same commands creates nothing. Works on wgpu objects it is
handed and never imports wgpu. Used by `native.py` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from rlxweb.gpu.books import Tables, handles_of
from rlxweb.gpu.port import Access, Clear, Command, Copy, Range
from rlxweb.gpu.quick import Quick
from rlxweb.limits import Limits

_TYPES: dict[Access, str] = {
    "read": "read-only-storage",
    "write": "storage",
    "uniform": "uniform",
}
_COMPUTE = 4
# Command tuples whose ready form is kept for their next submission.
_KEPT = 64

GroupKey = tuple[tuple[Access, ...], tuple[Range, ...]]


Stamps = tuple[Any, Any]
"""A set of time stamp queries and the buffer they are resolved to."""


class _Run(NamedTuple):
    """A dispatch with its native objects."""

    pipeline: Any
    groups: tuple[Any, ...]
    grid: tuple[int, int, int]


class _Call(NamedTuple):
    """A copy or clear: an encoder method and its arguments."""

    method: str
    arguments: tuple[Any, ...]


class _Ready(NamedTuple):
    """A command list in native form; holds the commands so that their id stays."""

    commands: Sequence[Command]
    steps: list[_Run | _Call]
    handles: frozenset[int]


class Binder:
    """Makes and keeps bind groups and ready command lists of one device."""

    def __init__(
        self,
        device: Any,
        tables: Tables,
        created: dict[str, int],
        quick: Quick | None = None,
    ) -> None:
        self._device = device
        self._quick = quick
        self._tables = tables
        self._created = created
        self._layouts: dict[tuple[Access, ...], Any] = {}
        self._groups: dict[GroupKey, Any] = {}
        self._users: dict[int, set[GroupKey]] = {}
        self._ready: dict[int, _Ready] = {}

    def pipeline_layout(self, layout: tuple[Access, ...]) -> Any:
        """Storage bindings as group 0, a trailing uniform as group 1."""
        groups = [self._group_layout(part) for part in _parts(layout)]
        return self._device.create_pipeline_layout(bind_group_layouts=groups)

    def pieces(
        self, lists: Sequence[Sequence[Command]], limits: Limits, most: int | None
    ) -> tuple[Iterator[Any], frozenset[int]]:
        """Finished command buffers and the handles that they use.

        Neighbouring dispatches share a pass. All commands are checked here; a buffer is
        encoded when it is asked for.

        most   about how many commands of one buffer; None: all
        """
        ready = [self._ready_of(commands, limits) for commands in lists]
        handles = frozenset[int]().union(*(one.handles for one in ready))
        steps = list(chain.from_iterable(one.steps for one in ready))
        return map(self._encoded, _cut(steps, most)), handles

    def stamped(
        self, lists: Sequence[Sequence[Command]], limits: Limits, stamps: Stamps
    ) -> tuple[Any, frozenset[int]]:
        """The same in one, with the times.

        stamps   queries, two for each list, and a buffer of theirs: the time before and
                 behind each list goes there
        """
        ready = [self._ready_of(commands, limits) for commands in lists]
        handles = frozenset[int]().union(*(one.handles for one in ready))
        encoder = self._device.create_command_encoder()
        queries, resolved = stamps
        for at, one in enumerate(ready):
            _encode_stamped(encoder, one.steps, queries, 2 * at)
        encoder.resolve_query_set(queries, 0, 2 * len(ready), resolved, 0)
        return encoder.finish(), handles

    def _encoded(self, steps: Sequence[_Run | _Call]) -> Any:
        if self._quick is not None:
            return self._quick.encode(steps)
        encoder = self._device.create_command_encoder()
        _encode(encoder, steps)
        return encoder.finish()

    def forget(self, handle: int) -> None:
        """Drop whatever holds a buffer or pipeline that is about to go."""
        for key in self._users.pop(handle, ()):
            self._groups.pop(key, None)
            for span in key[1]:
                self._users.get(span.handle, set()).discard(key)
        for at in [k for k, r in self._ready.items() if handle in r.handles]:
            del self._ready[at]

    def _ready_of(self, commands: Sequence[Command], limits: Limits) -> _Ready:
        # Only a tuple cannot change between two submissions; holding it keeps its id.
        kept = self._ready.get(id(commands))
        if kept is not None and kept.commands is commands:
            return kept
        for command in commands:
            self._tables.check(command, limits)
        steps = [self._step(command) for command in commands]
        handles = frozenset(h for c in commands for h in handles_of(c))
        ready = _Ready(commands, steps, handles)
        if isinstance(commands, tuple):
            while len(self._ready) >= _KEPT:
                del self._ready[next(iter(self._ready))]
            self._ready[id(commands)] = ready
        return ready

    def _step(self, command: Command) -> _Run | _Call:
        buffers = self._tables.buffers
        if isinstance(command, Copy):
            span = command.source
            copied = buffers[span.handle], span.offset
            to = buffers[command.target], command.target_offset, span.nbytes
            return _Call("copy_buffer_to_buffer", (*copied, *to))
        if isinstance(command, Clear):
            span = command.target
            cleared = buffers[span.handle], span.offset, span.nbytes
            return _Call("clear_buffer", cleared)
        layout = self._tables.layouts[command.pipeline]
        groups, at = [], 0
        for part in _parts(layout):
            groups.append(self._group(part, command.bindings[at : at + len(part)]))
            at += len(part)
        pipeline = self._tables.pipelines[command.pipeline]
        return _Run(pipeline, tuple(groups), command.grid)

    def _group_layout(self, part: tuple[Access, ...]) -> Any:
        if part not in self._layouts:
            entries = [
                {"binding": n, "visibility": _COMPUTE, "buffer": {"type": _TYPES[way]}}
                for n, way in enumerate(part)
            ]
            self._layouts[part] = self._device.create_bind_group_layout(entries=entries)
        return self._layouts[part]

    def _group(self, part: tuple[Access, ...], spans: tuple[Range, ...]) -> Any:
        key = (part, spans)
        found = self._groups.get(key)
        if found is None:
            entries = [
                {"binding": at, "resource": self._resource(span)}
                for at, span in enumerate(spans)
            ]
            found = self._device.create_bind_group(
                layout=self._group_layout(part), entries=entries
            )
            self._created["bind_groups"] += 1
            self._groups[key] = found
            for span in spans:
                self._users.setdefault(span.handle, set()).add(key)
        return found

    def _resource(self, span: Range) -> dict[str, Any]:
        native = self._tables.buffers[span.handle]
        return {"buffer": native, "offset": span.offset, "size": span.nbytes}


def _cut(
    steps: Sequence[_Run | _Call], most: int | None
) -> Iterator[Sequence[_Run | _Call]]:
    """The steps in pieces of much the same length."""
    count = max(1, round(len(steps) / most)) if most else 1
    size = max(1, -(-len(steps) // count))
    return (steps[at : at + size] for at in range(0, max(1, len(steps)), size))


def _encode(
    encoder: Any, steps: Iterable[_Run | _Call], stamps: dict[str, Any] | None = None
) -> None:
    """The steps; `stamps` are taken around the pass, where there is one alone."""
    compute = bound = None
    for step in steps:
        if isinstance(step, _Call):
            if compute is not None:
                compute.end()
                compute = bound = None
            getattr(encoder, step.method)(*step.arguments)
            continue
        if compute is None:
            compute = encoder.begin_compute_pass(timestamp_writes=stamps)
        if step.pipeline is not bound:
            bound = step.pipeline
            compute.set_pipeline(bound)
        for index, group in enumerate(step.groups):
            compute.set_bind_group(index, group)
        compute.dispatch_workgroups(*step.grid)
    if compute is not None:
        compute.end()


def _encode_stamped(
    encoder: Any, steps: Sequence[_Run | _Call], queries: Any, at: int
) -> None:
    """The steps, with the time before them and behind them as two queries from `at`."""
    before = {"beginning_of_pass_write_index": at}
    behind = {"end_of_pass_write_index": at + 1}
    stamps: dict[str, Any] = {"query_set": queries}
    if steps and not any(isinstance(step, _Call) for step in steps):
        _encode(encoder, steps, stamps | before | behind)
        return
    # Copies have no pass that could carry a stamp; passes without work carry them.
    encoder.begin_compute_pass(timestamp_writes=stamps | before).end()
    _encode(encoder, steps)
    encoder.begin_compute_pass(timestamp_writes=stamps | behind).end()


def _parts(layout: tuple[Access, ...]) -> tuple[tuple[Access, ...], ...]:
    """The layout of each bind group."""
    if layout and layout[-1] == "uniform":
        return layout[:-1], layout[-1:]
    return (layout,)
