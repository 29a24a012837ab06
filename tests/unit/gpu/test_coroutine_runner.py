"""Running a coroutine to its end by one send, with an error if it suspends."""

from __future__ import annotations

import inspect
from collections.abc import Generator

import pytest

from rlxweb.core.errors import DeviceError
from rlxweb.gpu.coroutine_runner import run_blocking


class Pause:
    """Awaitable that suspends once, as an event loop's future does."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def test_the_result_comes_back() -> None:
    async def inner() -> int:
        return 7

    async def outer() -> int:
        return await inner() + 1

    assert run_blocking(outer()) == 8


def test_an_exception_passes_through_unchanged() -> None:
    error = KeyError("mine")

    async def fails() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        run_blocking(fails())
    assert caught.value is error


def test_a_coroutine_that_suspends_is_closed_and_refused() -> None:
    """A coroutine that suspends is closed, its clean-up runs, and the error has a
    hint.
    """
    cleaned = []

    async def waits() -> None:
        try:
            await Pause()
        finally:
            cleaned.append(True)

    coro = waits()
    with pytest.raises(DeviceError, match=r"await run_async\(") as caught:
        run_blocking(coro)
    assert cleaned == [True]
    assert inspect.getcoroutinestate(coro) == inspect.CORO_CLOSED
    assert all((caught.value.doing, caught.value.problem, caught.value.hint))
