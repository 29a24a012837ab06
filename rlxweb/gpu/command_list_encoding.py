"""Preparation of command lists for a wgpu device: checking, binding and encoding.

Bind groups are made once per set of ranges and kept until a buffer in them goes, so a
second submission of the same commands creates nothing. Works on wgpu objects it is
handed and never imports wgpu. Used by `wgpu_port.py` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from rlxweb.core.limits import Limits
from rlxweb.gpu.port_base import HandleTable, command_handles
from rlxweb.gpu.port_protocol import (
    BindingAccess,
    BufferClear,
    BufferCopy,
    BufferRange,
    Command,
)
from rlxweb.gpu.wgpu_ffi import WgpuFfi

_BINDING_TYPES: dict[BindingAccess, str] = {
    "read": "read-only-storage",
    "write": "storage",
    "uniform": "uniform",
}
_COMPUTE_VISIBILITY = 4
# Command tuples whose ready form is kept for their next submission.
_MAX_PREPARED_LISTS = 64

BindGroupKey = tuple[tuple[BindingAccess, ...], tuple[BufferRange, ...]]


TimestampQueries = tuple[Any, Any]
"""Timestamp query set and the buffer that it is resolved to."""


class _BoundDispatch(NamedTuple):
    """Dispatch with its native pipeline and bind groups."""

    pipeline: Any
    groups: tuple[Any, ...]
    grid: tuple[int, int, int]


class _EncoderCall(NamedTuple):
    """Copy or clear: an encoder method and its arguments."""

    method: str
    arguments: tuple[Any, ...]


class _PreparedCommands(NamedTuple):
    """Command list in native form; holds the commands so that their id stays valid."""

    commands: Sequence[Command]
    steps: list[_BoundDispatch | _EncoderCall]
    handles: frozenset[int]


class CommandBinder:
    """Cache of bind groups and prepared command lists of one device."""

    def __init__(
        self,
        device: Any,
        handle_table: HandleTable,
        created_counts: dict[str, int],
        wgpu_ffi: WgpuFfi | None = None,
    ) -> None:
        self._device = device
        self._wgpu_ffi = wgpu_ffi
        self._handle_table = handle_table
        self._created_counts = created_counts
        self._bind_group_layouts: dict[tuple[BindingAccess, ...], Any] = {}
        self._bind_groups: dict[BindGroupKey, Any] = {}
        self._group_keys_by_handle: dict[int, set[BindGroupKey]] = {}
        self._prepared: dict[int, _PreparedCommands] = {}

    def create_pipeline_layout(self, layout: tuple[BindingAccess, ...]) -> Any:
        """Create a pipeline layout: storage bindings as group 0, a trailing uniform as
        group 1.
        """
        groups = [
            self._bind_group_layout(accesses) for accesses in _bind_group_parts(layout)
        ]
        return self._device.create_pipeline_layout(bind_group_layouts=groups)

    def command_buffers(
        self,
        lists: Sequence[Sequence[Command]],
        limits: Limits,
        max_commands: int | None,
    ) -> tuple[Iterator[Any], frozenset[int]]:
        """Check the lists; return an iterator of finished command buffers and the
        handles they use.

        Neighbouring dispatches share a pass. All commands are checked here; a buffer is
        encoded when it is asked for.

        max_commands  about how many commands of one buffer; None: all
        """
        prepared = [self._prepare(commands, limits) for commands in lists]
        handles = frozenset[int]().union(
            *(prepared_list.handles for prepared_list in prepared)
        )
        steps = list(
            chain.from_iterable(prepared_list.steps for prepared_list in prepared)
        )
        return map(self._encode_steps, _split_steps(steps, max_commands)), handles

    def timestamped_command_buffer(
        self,
        lists: Sequence[Sequence[Command]],
        limits: Limits,
        timestamps: TimestampQueries,
    ) -> tuple[Any, frozenset[int]]:
        """Return one command buffer with a timestamp before and after each list, and
        the handles it uses.

        timestamps  queries, two for each list, and a buffer of theirs: the time before
                    and behind each list goes there
        """
        prepared = [self._prepare(commands, limits) for commands in lists]
        handles = frozenset[int]().union(
            *(prepared_list.handles for prepared_list in prepared)
        )
        encoder = self._device.create_command_encoder()
        queries, resolve_buffer = timestamps
        for index, prepared_list in enumerate(prepared):
            _encode_timestamped(encoder, prepared_list.steps, queries, 2 * index)
        encoder.resolve_query_set(queries, 0, 2 * len(prepared), resolve_buffer, 0)
        return encoder.finish(), handles

    def _encode_steps(self, steps: Sequence[_BoundDispatch | _EncoderCall]) -> Any:
        """Encode steps into a finished command buffer."""
        if self._wgpu_ffi is not None:
            return self._wgpu_ffi.encode(steps)
        encoder = self._device.create_command_encoder()
        _encode_into(encoder, steps)
        return encoder.finish()

    def forget_handle(self, handle: int) -> None:
        """Drop everything that holds a buffer or pipeline that is about to be
        destroyed.
        """
        for key in self._group_keys_by_handle.pop(handle, ()):
            self._bind_groups.pop(key, None)
            for span in key[1]:
                self._group_keys_by_handle.get(span.handle, set()).discard(key)
        for prepared_key in [
            k for k, commands in self._prepared.items() if handle in commands.handles
        ]:
            del self._prepared[prepared_key]

    def _prepare(
        self, commands: Sequence[Command], limits: Limits
    ) -> _PreparedCommands:
        """Check and bind a command list, or return its cached form."""
        # Only a tuple cannot change between two submissions; holding it keeps its id.
        cached = self._prepared.get(id(commands))
        if cached is not None and cached.commands is commands:
            return cached
        for command in commands:
            self._handle_table.check_command(command, limits)
        steps = [self._native_step(command) for command in commands]
        handles = frozenset(h for c in commands for h in command_handles(c))
        prepared = _PreparedCommands(commands, steps, handles)
        if isinstance(commands, tuple):
            while len(self._prepared) >= _MAX_PREPARED_LISTS:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[id(commands)] = prepared
        return prepared

    def _native_step(self, command: Command) -> _BoundDispatch | _EncoderCall:
        """Return a command with its native objects."""
        buffers = self._handle_table.buffers
        if isinstance(command, BufferCopy):
            span = command.source
            source = buffers[span.handle], span.offset
            destination = buffers[command.target], command.target_offset, span.nbytes
            return _EncoderCall("copy_buffer_to_buffer", (*source, *destination))
        if isinstance(command, BufferClear):
            span = command.target
            cleared_range = buffers[span.handle], span.offset, span.nbytes
            return _EncoderCall("clear_buffer", cleared_range)
        layout = self._handle_table.pipeline_layouts[command.pipeline]
        groups, position = [], 0
        for accesses in _bind_group_parts(layout):
            groups.append(
                self._bind_group(
                    accesses, command.bindings[position : position + len(accesses)]
                )
            )
            position += len(accesses)
        pipeline = self._handle_table.pipelines[command.pipeline]
        return _BoundDispatch(pipeline, tuple(groups), command.grid)

    def _bind_group_layout(self, accesses: tuple[BindingAccess, ...]) -> Any:
        """Return the cached bind group layout of some accesses."""
        if accesses not in self._bind_group_layouts:
            entries = [
                {
                    "binding": n,
                    "visibility": _COMPUTE_VISIBILITY,
                    "buffer": {"type": _BINDING_TYPES[access]},
                }
                for n, access in enumerate(accesses)
            ]
            self._bind_group_layouts[accesses] = self._device.create_bind_group_layout(
                entries=entries
            )
        return self._bind_group_layouts[accesses]

    def _bind_group(
        self, accesses: tuple[BindingAccess, ...], spans: tuple[BufferRange, ...]
    ) -> Any:
        """Return the cached bind group of some buffer ranges."""
        key = (accesses, spans)
        bind_group = self._bind_groups.get(key)
        if bind_group is None:
            entries = [
                {"binding": index, "resource": self._binding_resource(span)}
                for index, span in enumerate(spans)
            ]
            bind_group = self._device.create_bind_group(
                layout=self._bind_group_layout(accesses), entries=entries
            )
            self._created_counts["bind_groups"] += 1
            self._bind_groups[key] = bind_group
            for span in spans:
                self._group_keys_by_handle.setdefault(span.handle, set()).add(key)
        return bind_group

    def _binding_resource(self, span: BufferRange) -> dict[str, Any]:
        """Return a buffer range as wgpu's binding resource."""
        native = self._handle_table.buffers[span.handle]
        return {"buffer": native, "offset": span.offset, "size": span.nbytes}


def _split_steps(
    steps: Sequence[_BoundDispatch | _EncoderCall], max_steps: int | None
) -> Iterator[Sequence[_BoundDispatch | _EncoderCall]]:
    """Split the steps into chunks of about equal length."""
    count = max(1, round(len(steps) / max_steps)) if max_steps else 1
    size = max(1, -(-len(steps) // count))
    return (steps[start : start + size] for start in range(0, max(1, len(steps)), size))


def _encode_into(
    encoder: Any,
    steps: Iterable[_BoundDispatch | _EncoderCall],
    timestamp_writes: dict[str, Any] | None = None,
) -> None:
    """Encode steps; `timestamp_writes` applies to the compute pass if there is only
    one.
    """
    compute_pass = bound_pipeline = None
    for step in steps:
        if isinstance(step, _EncoderCall):
            if compute_pass is not None:
                compute_pass.end()
                compute_pass = bound_pipeline = None
            getattr(encoder, step.method)(*step.arguments)
            continue
        if compute_pass is None:
            compute_pass = encoder.begin_compute_pass(timestamp_writes=timestamp_writes)
        if step.pipeline is not bound_pipeline:
            bound_pipeline = step.pipeline
            compute_pass.set_pipeline(bound_pipeline)
        for index, group in enumerate(step.groups):
            compute_pass.set_bind_group(index, group)
        compute_pass.dispatch_workgroups(*step.grid)
    if compute_pass is not None:
        compute_pass.end()


def _encode_timestamped(
    encoder: Any,
    steps: Sequence[_BoundDispatch | _EncoderCall],
    queries: Any,
    first_query: int,
) -> None:
    """Encode steps with timestamps before and after them, as two queries from
    `first_query`.
    """
    start_write = {"beginning_of_pass_write_index": first_query}
    end_write = {"end_of_pass_write_index": first_query + 1}
    timestamp_writes: dict[str, Any] = {"query_set": queries}
    if steps and not any(isinstance(step, _EncoderCall) for step in steps):
        _encode_into(encoder, steps, timestamp_writes | start_write | end_write)
        return
    # Copies have no pass that could carry a stamp; passes without work carry them.
    encoder.begin_compute_pass(timestamp_writes=timestamp_writes | start_write).end()
    _encode_into(encoder, steps)
    encoder.begin_compute_pass(timestamp_writes=timestamp_writes | end_write).end()


def _bind_group_parts(
    layout: tuple[BindingAccess, ...],
) -> tuple[tuple[BindingAccess, ...], ...]:
    """Return the accesses of each bind group of a pipeline layout."""
    if layout and layout[-1] == "uniform":
        return layout[:-1], layout[-1:]
    return (layout,)
