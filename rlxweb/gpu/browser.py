"""The GPU port over `navigator.gpu`: the only file that imports js and pyodide.

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

from rlxweb.errors import AdapterMissing, DeviceError, MustAwait
from rlxweb.gpu import rules
from rlxweb.gpu.books import Books, handles_of
from rlxweb.gpu.browser_words import (
    facts_of,
    limits_of,
    limits_to_ask,
    ours,
    plain,
    their_feature,
)
from rlxweb.gpu.port import STAMPS, Access, Command, DeviceFacts, Usage, Want

_LETTERS: dict[Access, str] = {"read": "r", "write": "w", "uniform": "u"}
# Command tuples whose ready form is kept for their next submission.
_KEPT = 64


@dataclass(slots=True)
class _Stepping:
    """Which kind of caller runs Python right now; one thread, so one answer.

    "task"   an event loop: a wait is `await`ed
    "block"  `drive` where stacks can be switched: a wait is handed to it
    "never"  `drive` where they cannot: there is no way to wait
    """

    how: str = "task"


_stepping = _Stepping()


def can_block() -> bool:
    """Can blocking code wait here? That takes the browser's stack switching (JSPI)."""
    from pyodide.ffi import can_run_sync

    return bool(can_run_sync())


def is_blocking() -> bool | None:
    """Is `block_on` running Python now: able to wait, unable, or (None) not at all?"""
    return {"block": True, "never": False}.get(_stepping.how)


def block_on(coro: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end from blocking code.

    Errors   MustAwait when it has to wait and the browser cannot switch stacks.
    """
    if not can_block():
        waits, result = _step("never", coro, None)
        if waits is not None:
            coro.close()
            raise must_await("run", "run_async")
        return result
    from pyodide.ffi import run_sync

    promise, result = _step("block", coro, None)
    while promise is not None:
        try:
            value = run_sync(promise)
        except BaseException as error:
            promise, result = _step("block", coro, error)
        else:
            promise, result = _step("block", coro, None, value)
    return result


def _step(
    how: str,
    coro: Coroutine[Any, Any, Any],
    error: BaseException | None,
    value: Any = None,
) -> tuple[Any, Any]:
    """One step of a coroutine: (what it waits for, None) or (None, its result)."""
    before, _stepping.how = _stepping.how, how
    try:
        return (coro.send(value) if error is None else coro.throw(error)), None
    except StopIteration as done:
        return None, done.value
    finally:
        _stepping.how = before


@coroutine
def _handed(promise: Any) -> Generator[Any, Any, Any]:
    """A promise for `block_on` to wait for."""
    return (yield promise)


def must_await(doing: str, instead: str) -> MustAwait:
    """The error for blocking code where nothing can block."""
    return MustAwait(
        doing,
        "the GPU answers only when the page's event loop runs",
        "this browser, or this call, cannot switch stacks (JSPI)",
        f"use `await {instead}(…)`, or run Python by `runPythonAsync`",
    )


def _wait(promise: Any) -> Awaitable[Any]:
    return _handed(promise) if _stepping.how == "block" else promise


class Gate:
    """A promise that is kept by `open`; tasks of a tab wait for it."""

    def __init__(self) -> None:
        self._js = _gates()()

    async def opened(self) -> None:
        """Wait. Errors  MustAwait where blocking code cannot wait."""
        if _stepping.how == "never":
            raise must_await("wait for another run", "run_async")
        await _wait(self._js.kept)

    def open(self) -> None:
        self._js.keep()


@cache
def _gates() -> Any:
    """A function that makes a promise and what keeps it."""
    from pyodide.code import run_js

    return run_js(
        "() => { let keep; const kept = new Promise((done) => { keep = done; });"
        " return { kept, keep: () => keep(null) }; }"
    )


@cache
def _bridge() -> Any:
    """bridge.js, evaluated once: a function that makes one port."""
    from pyodide.code import run_js

    return run_js(_text("bridge.js"))


@cache
def _stamps() -> Any:
    """stamps.js, evaluated once: a function of a port and its lists."""
    from pyodide.code import run_js

    return run_js(_text("stamps.js"))


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


class BrowserPort(Books):
    """The nine verbs over one GPUDevice of this tab.

    What WebGPU finds wrong with a buffer or a submission it says later: such errors
    come out of the next `read` that they could have spoiled, never too late for it.
    """

    def __init__(self, deadline_s: float = 30.0) -> None:
        super().__init__(deadline_s, "buffers", "pipelines", "lists")
        self._js: Any = None
        self._ready: dict[int, tuple[Sequence[Command], int, frozenset[int]]] = {}

    async def open(self, want: Want) -> DeviceFacts:
        self._check_opening(self._js)
        self._must_be_able_to_wait("open the GPU of this tab", "open_async")
        self._js = _bridge()()
        try:
            found = json.loads(await self._call("open the GPU", "find"))
            facts = facts_of(found)
            self._refuse(facts, want)
            features = facts.features & frozenset(want.features)
            granted = await self._call(
                f"open {facts.name}",
                "open",
                json.dumps(sorted(their_feature(f) for f in features)),
                json.dumps(limits_to_ask(want.limits, facts.limits)),
                self._deadline_ms,
            )
            limits = limits_of(json.loads(granted))
            return await self._proven(facts, features, limits, want)
        except BaseException:
            self._drop()
            self._facts = None
            raise

    def buffer(self, nbytes: int, usage: Usage, *, is_fed: bool = False) -> int:
        """OutOfMemory comes with the next `read` of the buffer."""
        self._check_open("buffer")
        made = rules.check_buffer(nbytes, usage, self.facts.limits)
        handle = self._handle("buffers")
        doing = f"buffer of {nbytes} bytes ({usage})"
        self._now(doing, "buffer", handle, made.nbytes, usage)
        self._tables.sizes[handle] = made
        return handle

    def write(self, handle: int, offset: int, data: memoryview) -> None:
        """JavaScript borrows the bytes; the queue copies them."""
        self._check_open("write")
        flat, tail = rules.check_write(handle, offset, data, self._tables.sizes)
        doing = f"write {data.nbytes} bytes to buffer {handle}"
        if flat.nbytes:
            self._now(doing, "write", handle, offset, flat)
        if tail:
            self._now(doing, "write", handle, offset + flat.nbytes, memoryview(tail))

    async def pipeline(
        self,
        source: str,
        layout: Sequence[Access],
        constants: Mapping[str, float],
        *,
        checked: bool = True,
    ) -> int:
        self._check_open("pipeline")
        order = tuple(layout)
        rules.check_pipeline(source, order, constants, self.facts.limits)
        self._must_be_able_to_wait("compile a shader", "compile_async")
        handle = self._handle("pipelines")
        await self._call(
            "compile a shader",
            "pipeline",
            handle,
            source,
            "".join(_LETTERS[a] for a in order),
            json.dumps(dict(constants)),
            self._deadline_ms,
            source=source,
        )
        self._tables.layouts[handle] = order
        return handle

    def submit(self, *lists: Sequence[Command]) -> None:
        self._check_open("submit")
        doing = f"submit {sum(map(len, lists))} commands"
        numbers = [self._number_of(commands, doing) for commands in lists]
        try:
            self._now(doing, "submit", *numbers)
        finally:
            self._let_go(numbers, lists)

    def _let_go(
        self, numbers: Sequence[int], lists: Sequence[Sequence[Command]]
    ) -> None:
        """Of what was made ready for one submission alone."""
        for number, commands in zip(numbers, lists, strict=True):
            if not isinstance(commands, tuple):
                self._js.forget(number)

    def _number_of(self, commands: Sequence[Command], doing: str) -> int:
        """The number of a list that is ready."""
        known = self._ready.get(id(commands))
        if known is not None and known[0] is commands:
            return known[1]
        for command in commands:
            self._tables.check(command, self.facts.limits)
        number = self._handle("lists")
        self._now(doing, "ready", number, json.dumps([plain(c) for c in commands]))
        # Only a tuple cannot change between two submissions; holding it keeps its id.
        if isinstance(commands, tuple):
            while len(self._ready) >= _KEPT:
                self._forget(next(iter(self._ready)))
            handles = frozenset(h for c in commands for h in handles_of(c))
            self._ready[id(commands)] = (commands, number, handles)
        return number

    async def read(self, handle: int, offset: int, nbytes: int) -> memoryview:
        self._check_open("read")
        facts = rules.check_read(handle, offset, nbytes, self._tables.sizes)
        self._must_be_able_to_wait("read results", "run_async")
        out = np.empty(nbytes, np.uint8)
        await self._call(
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

    async def timed(self, lists: Sequence[Sequence[Command]]) -> tuple[int, ...]:
        """Browsers blur their clock: usually to tenths of a millisecond."""
        self._check_open("timed")
        if STAMPS not in self.facts.features:
            return await super().timed(lists)
        doing = f"time {len(lists)} lists of commands"
        self._must_be_able_to_wait(doing, "run_async")
        # None of them is kept, so that no number of one goes before all are timed.
        lists = [list(commands) for commands in lists]
        numbers = [self._number_of(commands, doing) for commands in lists]
        try:
            told = await self._waited(
                doing, _stamps()(self._js, json.dumps(numbers), self._deadline_ms)
            )
        finally:
            self._let_go(numbers, lists)
        return tuple(json.loads(told))

    def destroy(self, handle: int) -> None:
        self._check_destroy(handle)
        for key in [k for k, r in self._ready.items() if handle in r[2]]:
            self._forget(key)
        self._tables.forget(handle)
        self._js.free(handle)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._drop()

    @property
    def _deadline_ms(self) -> float:
        return 1e3 * self.deadline_s

    def _now(self, doing: str, verb: str, *arguments: Any) -> None:
        """A call that does not wait."""
        from pyodide.ffi import JsException

        try:
            getattr(self._js, verb)(*arguments)
        except JsException as error:
            raise self._ours(error, doing, "") from None

    async def _call(
        self, doing: str, verb: str, *arguments: Any, source: str = ""
    ) -> Any:
        """A call whose promise is waited for."""
        return await self._waited(doing, getattr(self._js, verb)(*arguments), source)

    async def _waited(self, doing: str, promise: Any, source: str = "") -> Any:
        from pyodide.ffi import JsException

        try:
            return await _wait(promise)
        except JsException as error:
            raise self._ours(error, doing, source) from None

    def _ours(self, error: Any, doing: str, source: str) -> DeviceError:
        self.lost = self.lost or str(self._js.lost)
        return ours(error, doing, source)

    def _must_be_able_to_wait(self, doing: str, instead: str) -> None:
        if _stepping.how == "never":
            raise must_await(doing, instead)

    def _check_open(self, verb: str) -> None:
        if self._js is not None:
            self.lost = self.lost or str(self._js.lost)
        self._check_usable(verb, self._js)

    def _refuse(self, facts: DeviceFacts, want: Want) -> None:
        doing = "open the GPU of this tab"
        if want.backends and "webgpu" not in want.backends:
            raise AdapterMissing(
                doing,
                f"{' or '.join(want.backends)} was asked for",
                "a browser offers 'webgpu' and nothing else",
                "choose device 'webgpu'",
            )
        if want.name.lower() not in f"{facts.name} {facts.vendor}".lower():
            raise AdapterMissing(
                doing,
                f"the adapter is {facts.name}",
                f"its name has no {want.name!r}",
                "a page cannot choose between adapters; leave the name out",
                ((facts.name, "another name was asked for"),),
            )

    def _forget(self, key: int) -> None:
        self._js.forget(self._ready.pop(key)[1])

    def _drop(self) -> None:
        if self._js is not None:
            self._js.close()
        self._js = None
        self._tables.clear()
        self._ready.clear()
