"""GPU port over a browser's `navigator.gpu`; the only module that imports js and
pyodide.

Runs inside Pyodide, in a Worker or on a page. `bridge.js` owns the JavaScript objects;
a command list crosses once and is replayed by number from then on. Here are the
handles, the checks before any call, and what JavaScript's errors mean.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import coroutine
from typing import Any

import numpy as np

from rlxweb.core.errors import AdapterMissing, DeviceError, MustAwait
from rlxweb.gpu import command_validation
from rlxweb.gpu.js_bridge_conversion import (
    command_as_list,
    convert_bridge_error,
    facts_from_report,
    limits_from_webgpu,
    webgpu_feature,
    webgpu_limits_to_request,
)
from rlxweb.gpu.port_base import PortBase, command_handles
from rlxweb.gpu.port_protocol import (
    TIMESTAMP_FEATURE,
    AdapterRequest,
    BindingAccess,
    BufferUsage,
    Command,
    DeviceFacts,
)

_ACCESS_LETTERS: dict[BindingAccess, str] = {"read": "r", "write": "w", "uniform": "u"}
# Command tuples whose ready form is kept for their next submission.
_MAX_PREPARED_LISTS = 64


@dataclass(slots=True)
class _CallerMode:
    """Kind of caller that runs Python now; there is only one thread.

    "task"   an event loop: a wait is `await`ed
    "block"  `drive` where stacks can be switched: a wait is handed to it
    "never"  `drive` where they cannot: there is no way to wait
    """

    mode: str = "task"


_caller_mode = _CallerMode()


def can_block() -> bool:
    """Return whether blocking code can wait here, which needs the browser's stack
    switching (JSPI).
    """
    from pyodide.ffi import can_run_sync

    return bool(can_run_sync())


def is_blocking() -> bool | None:
    """Return whether the running `block_on` can wait, or None if there is none."""
    return {"block": True, "never": False}.get(_caller_mode.mode)


def block_on(coro: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end from blocking code.

    Errors   MustAwait when it has to wait and the browser cannot switch stacks.
    """
    if not can_block():
        awaited_promise, result = _advance("never", coro, None)
        if awaited_promise is not None:
            coro.close()
            raise must_await_error("run", "run_async")
        return result
    from pyodide.ffi import run_sync

    promise, result = _advance("block", coro, None)
    while promise is not None:
        try:
            value = run_sync(promise)
        except BaseException as error:
            promise, result = _advance("block", coro, error)
        else:
            promise, result = _advance("block", coro, None, value)
    return result


def _advance(
    mode: str,
    coro: Coroutine[Any, Any, Any],
    error: BaseException | None,
    value: Any = None,
) -> tuple[Any, Any]:
    """Advance a coroutine; return (the promise it waits for, None) or (None, its
    result).
    """
    previous, _caller_mode.mode = _caller_mode.mode, mode
    try:
        return (coro.send(value) if error is None else coro.throw(error)), None
    except StopIteration as stop:
        return None, stop.value
    finally:
        _caller_mode.mode = previous


@coroutine
def _yield_promise(promise: Any) -> Generator[Any, Any, Any]:
    """Yield a promise for `block_on` to wait for."""
    return (yield promise)


def must_await_error(context: str, instead: str) -> MustAwait:
    """Return the error for blocking code where nothing can block."""
    return MustAwait(
        context,
        "the GPU responds only while the page's event loop runs",
        "this browser or this call does not support stack switching (JSPI)",
        f"use `await {instead}(…)`, or run Python with `runPythonAsync`",
    )


def _awaitable(promise: Any) -> Awaitable[Any]:
    """Return an awaitable that waits for a promise in the present caller mode."""
    return _yield_promise(promise) if _caller_mode.mode == "block" else promise


class PromiseGate:
    """Promise that `open` fulfils; tasks of a browser tab wait for it."""

    def __init__(self) -> None:
        self._js = _gate_factory()()

    async def wait_until_open(self) -> None:
        """Wait until the gate is open. Raise MustAwait where blocking code cannot
        wait.
        """
        if _caller_mode.mode == "never":
            raise must_await_error("wait for another run", "run_async")
        await _awaitable(self._js.kept)

    def open(self) -> None:
        """Fulfil the promise."""
        self._js.keep()


@cache
def _gate_factory() -> Any:
    """Return a JavaScript function that creates a promise and the function that fulfils
    it.
    """
    from pyodide.code import run_js

    return run_js(
        "() => { let keep; const kept = new Promise((done) => { keep = done; });"
        " return { kept, keep: () => keep(null) }; }"
    )


@cache
def _bridge_factory() -> Any:
    """Return the function of bridge.js that creates one port; evaluated once."""
    from pyodide.code import run_js

    return run_js(_script_text("bridge.js"))


@cache
def _timestamp_function() -> Any:
    """Return the function of stamps.js that times the lists of a port; evaluated
    once.
    """
    from pyodide.code import run_js

    return run_js(_script_text("stamps.js"))


def _script_text(name: str) -> str:
    """Return the text of a script in this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


class BrowserPort(PortBase):
    """GPU port over one GPUDevice of this browser tab.

    What WebGPU finds wrong with a buffer or a submission it says later: such errors
    come out of the next `read` that they could have spoiled, never too late for it.
    """

    def __init__(self, deadline_s: float = 30.0) -> None:
        super().__init__(deadline_s, "buffers", "pipelines", "lists")
        self._js: Any = None
        self._prepared_lists: dict[
            int, tuple[Sequence[Command], int, frozenset[int]]
        ] = {}

    async def open(self, request: AdapterRequest) -> DeviceFacts:
        """Open the tab's adapter and run the self-test."""
        self._check_can_open(self._js)
        self._check_can_wait("open the GPU of this tab", "open_async")
        self._js = _bridge_factory()()
        try:
            report = json.loads(await self._call_and_wait("open the GPU", "find"))
            facts = facts_from_report(report)
            self._check_adapter(facts, request)
            features = facts.features & frozenset(request.features)
            granted = await self._call_and_wait(
                f"open {facts.name}",
                "open",
                json.dumps(sorted(webgpu_feature(f) for f in features)),
                json.dumps(webgpu_limits_to_request(request.limits, facts.limits)),
                self._deadline_ms,
            )
            limits = limits_from_webgpu(json.loads(granted))
            return await self._verify_device(facts, features, limits, request)
        except BaseException:
            self._release()
            self._facts = None
            raise

    def create_buffer(
        self, nbytes: int, usage: BufferUsage, *, is_host_written: bool = False
    ) -> int:
        """Create a buffer. An OutOfMemory error is raised by the next `read` of the
        buffer.
        """
        self._check_open("buffer")
        facts = command_validation.check_buffer(nbytes, usage, self.facts.limits)
        handle = self._new_handle("buffers")
        context = f"buffer of {nbytes} bytes ({usage})"
        self._call_now(context, "buffer", handle, facts.nbytes, usage)
        self._handle_table.buffer_facts[handle] = facts
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        """Write bytes to a buffer; the browser's queue copies them."""
        self._check_open("write")
        flat, tail = command_validation.check_write(
            handle, offset, data, self._handle_table.buffer_facts
        )
        context = f"write {data.nbytes} bytes to buffer {handle}"
        if flat.nbytes:
            self._call_now(context, "write", handle, offset, flat)
        if tail:
            self._call_now(
                context, "write", handle, offset + flat.nbytes, memoryview(tail)
            )

    async def create_pipeline(
        self,
        source: str,
        layout: Sequence[BindingAccess],
        constants: Mapping[str, float],
        *,
        needs_checks: bool = True,
    ) -> int:
        """Compile `main` of a WGSL module."""
        self._check_open("pipeline")
        order = tuple(layout)
        command_validation.check_pipeline(source, order, constants, self.facts.limits)
        self._check_can_wait("compile a shader", "compile_async")
        handle = self._new_handle("pipelines")
        await self._call_and_wait(
            "compile a shader",
            "pipeline",
            handle,
            source,
            "".join(_ACCESS_LETTERS[a] for a in order),
            json.dumps(dict(constants)),
            self._deadline_ms,
            source=source,
        )
        self._handle_table.pipeline_layouts[handle] = order
        return handle

    def submit(self, *lists: Sequence[Command]) -> None:
        """Queue the commands of all lists as one submission; does not wait."""
        self._check_open("submit")
        context = f"submit {sum(map(len, lists))} commands"
        numbers = [self._list_number(commands, context) for commands in lists]
        try:
            self._call_now(context, "submit", *numbers)
        finally:
            self._forget_unshared(numbers, lists)

    def _forget_unshared(
        self, numbers: Sequence[int], lists: Sequence[Sequence[Command]]
    ) -> None:
        """Forget lists that were prepared for a single submission."""
        for number, commands in zip(numbers, lists, strict=True):
            if not isinstance(commands, tuple):
                self._js.forget(number)

    def _list_number(self, commands: Sequence[Command], context: str) -> int:
        """Return the number of a prepared list, preparing it if needed."""
        prepared = self._prepared_lists.get(id(commands))
        if prepared is not None and prepared[0] is commands:
            return prepared[1]
        for command in commands:
            self._handle_table.check_command(command, self.facts.limits)
        number = self._new_handle("lists")
        self._call_now(
            context, "ready", number, json.dumps([command_as_list(c) for c in commands])
        )
        # Only a tuple cannot change between two submissions; holding it keeps its id.
        if isinstance(commands, tuple):
            while len(self._prepared_lists) >= _MAX_PREPARED_LISTS:
                self._forget_list(next(iter(self._prepared_lists)))
            handles = frozenset(h for c in commands for h in command_handles(c))
            self._prepared_lists[id(commands)] = (commands, number, handles)
        return number

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        """Wait for the queue and return a copy of exactly `nbytes` bytes."""
        self._check_open("read")
        facts = command_validation.check_read(
            handle, offset, nbytes, self._handle_table.buffer_facts
        )
        self._check_can_wait("read results", "run_async")
        out = np.empty(nbytes, np.uint8)
        await self._call_and_wait(
            f"read {nbytes} bytes of buffer {handle}",
            "read",
            handle,
            offset,
            nbytes,
            facts.usage,
            out.data,
            self._deadline_ms,
        )
        return out.data

    async def time_command_lists(
        self, lists: Sequence[Sequence[Command]]
    ) -> tuple[int, ...]:
        """Return the nanoseconds of each list; browsers usually round to tenths of a
        millisecond.
        """
        self._check_open("timed")
        if TIMESTAMP_FEATURE not in self.facts.features:
            return await super().time_command_lists(lists)
        context = f"time {len(lists)} lists of commands"
        self._check_can_wait(context, "run_async")
        # None of them is kept, so that no number of one goes before all are timed.
        lists = [list(commands) for commands in lists]
        numbers = [self._list_number(commands, context) for commands in lists]
        try:
            times = await self._wait_for(
                context,
                _timestamp_function()(self._js, json.dumps(numbers), self._deadline_ms),
            )
        finally:
            self._forget_unshared(numbers, lists)
        return tuple(json.loads(times))

    def destroy(self, handle: int) -> None:
        """Free a buffer or pipeline."""
        self._check_destroy(handle)
        for key in [k for k, r in self._prepared_lists.items() if handle in r[2]]:
            self._forget_list(key)
        self._handle_table.remove(handle)
        self._js.free(handle)

    async def close(self) -> None:
        """Free everything. Idempotent."""
        if not self._closed:
            self._closed = True
            self._release()

    @property
    def _deadline_ms(self) -> float:
        """Deadline in milliseconds."""
        return 1e3 * self.deadline_s

    def _call_now(self, context: str, verb: str, *arguments: Any) -> None:
        """Call a method of the bridge that does not wait."""
        from pyodide.ffi import JsException

        try:
            getattr(self._js, verb)(*arguments)
        except JsException as error:
            raise self._convert_error(error, context, "") from None

    async def _call_and_wait(
        self, context: str, verb: str, *arguments: Any, source: str = ""
    ) -> Any:
        """Call a method of the bridge and wait for its promise."""
        return await self._wait_for(
            context, getattr(self._js, verb)(*arguments), source
        )

    async def _wait_for(self, context: str, promise: Any, source: str = "") -> Any:
        """Wait for a promise and convert JavaScript's errors."""
        from pyodide.ffi import JsException

        try:
            return await _awaitable(promise)
        except JsException as error:
            raise self._convert_error(error, context, source) from None

    def _convert_error(self, error: Any, context: str, source: str) -> DeviceError:
        """Convert a JavaScript exception to a DeviceError and note a lost device."""
        self.lost = self.lost or str(self._js.lost)
        return convert_bridge_error(error, context, source)

    def _check_can_wait(self, context: str, instead: str) -> None:
        """Raise MustAwait if the caller can neither block nor await."""
        if _caller_mode.mode == "never":
            raise must_await_error(context, instead)

    def _check_open(self, verb: str) -> None:
        """Raise an error if the port is closed, lost or not open."""
        if self._js is not None:
            self.lost = self.lost or str(self._js.lost)
        self._check_usable(verb, self._js)

    def _check_adapter(self, facts: DeviceFacts, request: AdapterRequest) -> None:
        """Raise AdapterMissing if the tab's adapter does not match the request."""
        context = "open the GPU of this tab"
        if request.backends and "webgpu" not in request.backends:
            raise AdapterMissing(
                context,
                f"{' or '.join(request.backends)} was requested",
                "a browser supports only 'webgpu'",
                "choose device 'webgpu'",
            )
        if request.name.lower() not in f"{facts.name} {facts.vendor}".lower():
            raise AdapterMissing(
                context,
                f"the adapter is {facts.name}",
                f"its name does not contain {request.name!r}",
                "omit the name; a page cannot choose between adapters",
                ((facts.name, f"its name does not contain {request.name!r}"),),
            )

    def _forget_list(self, key: int) -> None:
        """Drop a prepared list."""
        self._js.forget(self._prepared_lists.pop(key)[1])

    def _release(self) -> None:
        """Release all JavaScript objects and handles."""
        if self._js is not None:
            self._js.close()
        self._js = None
        self._handle_table.clear()
        self._prepared_lists.clear()
