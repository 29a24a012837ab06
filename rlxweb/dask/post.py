"""Tasks and questions to workers, and one queue of everything that comes back.

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
_FROM_LOOP: dict[str, Any] = {"asynchronous": True}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a task: its value, or what was raised, there or on the way."""

    key: str
    value: object = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker is there."""

    address: str


@dataclass(frozen=True, slots=True)
class Left:
    """A worker is gone, with the keys of the tasks that were not done.

    expected  it was told to go
    """

    address: str
    undone: frozenset[str]
    expected: bool


Message: TypeAlias = Answer | Joined | Left


class Post:
    """The way to a cluster and back."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._sent: dict[str, Future[Any] | None] = {}
        self._run = uuid4().hex[:8]
        self._pause = Event()
        loop = client.loop
        assert loop is not None, "the client was never started"
        self._later = loop.add_callback
        client.subscribe_topic("all", self._heard)

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return str(getattr(self.client.scheduler, "address", "an unknown address"))

    @property
    def is_open(self) -> bool:
        """Is the scheduler there?"""
        return bool(self.client.status == "running")

    def send(
        self, name: str, address: str, function: Callable[..., Any], *args: object
    ) -> str:
        """Have one worker call a function; the key that its answer will have."""
        key = self._key(name)
        future = self.client.submit(
            function,
            *args,
            key=key,
            workers=[address],
            allow_other_workers=False,
            pure=False,
        )
        self._sent[key] = future
        self._later(self._fetch, key, future)
        return key

    def ask(
        self, address: str, function: Callable[..., Any], each: Sequence[object]
    ) -> str:
        """Have one worker call a function for each, beside its tasks and not as one.

        Returns the key that the answer will have: a list, of what was raised too.
        """
        key = self._key("asked")
        self._sent[key] = None
        self._later(self._call, key, address, function, each)
        return key

    def messages(self, wait_s: float) -> Iterator[Message]:
        """All there are; where there is none yet the first that comes in time."""
        end = time.monotonic() + wait_s
        while True:
            try:
                message = self._inbox.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                return
            end = 0.0
            if isinstance(message, Answer):
                if message.key not in self._sent:
                    continue  # it was taken back, and answered all the same
                self.take_back([message.key])
            yield message

    def nap(self, wait_s: float) -> None:
        """Let some time pass."""
        self._pause.wait(wait_s)

    def take_back(self, keys: Iterable[str]) -> None:
        """Nobody waits for these any more."""
        for key in keys:
            future = self._sent.pop(key, None)
            if future is not None:
                future.release()

    def close(self) -> None:
        """Take everything back; the client stays open."""
        self.take_back(list(self._sent))
        with suppress(OSError, RuntimeError, ValueError):
            self.client.unsubscribe_topic("all")

    def _key(self, name: str) -> str:
        return f"{name}-{self._run}-{uuid4().hex}"

    async def _call(
        self,
        key: str,
        address: str,
        function: Callable[..., Any],
        each: Sequence[object],
    ) -> None:
        try:
            answers = [
                await self.client.run(
                    function, one, workers=[address], on_error="return", **_FROM_LOOP
                )
                for one in each
            ]
        except BaseException as error:
            self._inbox.put(Answer(key, error=error))
        else:
            self._inbox.put(Answer(key, [one.get(address) for one in answers]))

    async def _fetch(self, key: str, future: Future[Any]) -> None:
        try:
            value = await self.client.gather(future, asynchronous=True)
        except BaseException as error:  # CancelledError is no Exception
            self._inbox.put(Answer(key, error=error))
        else:
            self._inbox.put(Answer(key, value))

    def _heard(self, event: tuple[float, Any]) -> None:
        said = event[1]
        if not isinstance(said, dict) or "worker" not in said:
            return  # somebody else's event
        address = str(said["worker"])
        if said.get("action") == "add-worker":
            self._inbox.put(Joined(address))
        elif said.get("action") == "remove-worker":
            undone: Collection[Any] = said.get("processing-tasks", ())
            keys = frozenset(key for key in undone if isinstance(key, str))
            self._inbox.put(Left(address, keys, bool(said.get("expected"))))
