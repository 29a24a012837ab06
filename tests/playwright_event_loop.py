"""Hide the event loop that Playwright leaves running from tests without a browser.

Playwright's blocking interface runs its loop in a greenlet of the main thread, from the
first page to the end of pytest. Python takes that loop for a running one: whatever asks
for the running loop finds it, and `asyncio.run` refuses to start another. wgpu-py knows
a loop by its hooks for asynchronous generators, which are hidden as well.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

BROWSER_MARK = "requires_browser"
"""Mark of tests that call Playwright and need its loop.

Its fixtures cannot tell: one of them may request the browser while it is set up.
"""


@contextmanager
def hide_loop_from(item: pytest.Item) -> Iterator[None]:
    """Hide Playwright's loop from a test that needs no browser."""
    loop = asyncio._get_running_loop()
    if loop is None or item.get_closest_marker(BROWSER_MARK):
        yield
        return
    hooks = sys.get_asyncgen_hooks()
    asyncio._set_running_loop(None)
    sys.set_asyncgen_hooks(None, None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        sys.set_asyncgen_hooks(*hooks)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Hide Playwright's loop while fixtures of a test without a browser are made."""
    with hide_loop_from(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Hide Playwright's loop while a test without a browser runs."""
    with hide_loop_from(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None]:
    """Hide Playwright's loop while fixtures end, unless the browser ends with them."""
    if nextitem is None:
        return (yield)
    with hide_loop_from(item):
        return (yield)
