"""Messenger to a cluster: tasks and questions to workers, and one queue of everything
that comes back.

Answers, workers that join and workers that leave arrive as messages in the order in
which they are heard of, so that who deals with them is one loop on one thread, which no
silent worker holds up. Every task is for one worker and runs nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, TypeAlias
from uuid import uuid4

from distributed import Client, Future

# Taken by `Client.run` itself, and no argument of what it runs.
_ASYNC_OPTION: dict[str, Any] = {"asynchronous": True}


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """Outcome of a task: its value, or the error that was raised, on the worker or on
    the way.
    """

    key: str
    value: object = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """Message that a worker has joined."""

    address: str


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """Message that a worker is gone, with the keys of its unfinished tasks.

    is_expected  it was told to go
    """

    address: str
    unfinished_keys: frozenset[str]
    is_expected: bool


ClusterMessage: TypeAlias = WorkerAnswer | WorkerJoined | WorkerLeft


class ClusterMessenger:
    """Messenger that sends tasks to workers and receives their answers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._inbox: SimpleQueue[ClusterMessage] = SimpleQueue()
        self._pending: dict[str, Future[Any] | None] = {}
        self._run_id = uuid4().hex[:8]
        self._pause = Event()
        loop = client.loop
        assert loop is not None, "the client is not started"
        self._call_on_loop = loop.add_callback
        client.subscribe_topic("all", self._handle_event)

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return str(getattr(self.client.scheduler, "address", "an unknown address"))

    @property
    def is_open(self) -> bool:
        """Return whether the scheduler is connected."""
        return bool(self.client.status == "running")

    def submit(
        self, name: str, address: str, function: Callable[..., Any], *args: object
    ) -> str:
        """Have one worker call a function; return the key that its answer will have."""
        key = self._new_key(name)
        future = self.client.submit(
            function,
            *args,
            key=key,
            workers=[address],
            allow_other_workers=False,
            pure=False,
        )
        self._pending[key] = future
        self._call_on_loop(self._deliver_result, key, future)
        return key

    def query(
        self, address: str, function: Callable[..., Any], values: Sequence[object]
    ) -> str:
        """Have one worker call a function for each value, besides its tasks and not as
        one of them.

        Returns the key that the answer will have: a list, of what was raised too.
        """
        key = self._new_key("asked")
        self._pending[key] = None
        self._call_on_loop(self._run_query, key, address, function, values)
        return key

    def receive(self, wait_s: float) -> Iterator[ClusterMessage]:
        """Yield all messages there are; if there is none, wait for the first one."""
        end = time.monotonic() + wait_s
        while True:
            try:
                message = self._inbox.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                return
            end = 0.0
            if isinstance(message, WorkerAnswer):
                if message.key not in self._pending:
                    continue  # it was taken back, and answered all the same
                self.cancel([message.key])
            yield message

    def wait(self, wait_s: float) -> None:
        """Wait for some seconds."""
        self._pause.wait(wait_s)

    def cancel(self, keys: Iterable[str]) -> None:
        """Cancel tasks whose answers are no longer wanted."""
        for key in keys:
            future = self._pending.pop(key, None)
            if future is not None:
                future.release()

    def close(self) -> None:
        """Cancel all tasks; the client stays open."""
        self.cancel(list(self._pending))
        with suppress(OSError, RuntimeError, ValueError):
            self.client.unsubscribe_topic("all")

    def _new_key(self, name: str) -> str:
        return f"{name}-{self._run_id}-{uuid4().hex}"

    async def _run_query(
        self,
        key: str,
        address: str,
        function: Callable[..., Any],
        values: Sequence[object],
    ) -> None:
        try:
            replies = [
                await self.client.run(
                    function,
                    value,
                    workers=[address],
                    on_error="return",
                    **_ASYNC_OPTION,
                )
                for value in values
            ]
        except BaseException as error:
            self._inbox.put(WorkerAnswer(key, error=error))
        else:
            self._inbox.put(
                WorkerAnswer(key, [value.get(address) for value in replies])
            )

    async def _deliver_result(self, key: str, future: Future[Any]) -> None:
        try:
            value = await self.client.gather(future, asynchronous=True)
        except BaseException as error:  # CancelledError is no Exception
            self._inbox.put(WorkerAnswer(key, error=error))
        else:
            self._inbox.put(WorkerAnswer(key, value))

    def _handle_event(self, event: tuple[float, Any]) -> None:
        details = event[1]
        if not isinstance(details, dict) or "worker" not in details:
            return  # somebody else's event
        address = str(details["worker"])
        if details.get("action") == "add-worker":
            self._inbox.put(WorkerJoined(address))
        elif details.get("action") == "remove-worker":
            unfinished: Collection[Any] = details.get("processing-tasks", ())
            keys = frozenset(key for key in unfinished if isinstance(key, str))
            self._inbox.put(WorkerLeft(address, keys, bool(details.get("expected"))))
