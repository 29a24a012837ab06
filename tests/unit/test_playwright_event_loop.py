"""Playwright's event loop is hidden from tests that use no browser."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.playwright_event_loop import BROWSER_MARK, hide_loop_from


class MarkedItem(pytest.Item):
    """Test item without a function, to carry marks."""

    def runtest(self) -> None:
        """Do nothing."""


def test_only_browser_tests_see_the_event_loop_of_playwright(
    request: pytest.FixtureRequest,
) -> None:
    """`asyncio.run` works where loop and hooks are hidden; both are back afterwards."""

    async def done() -> str:
        return "done"

    def finalize(generator: AsyncGenerator[Any]) -> None:
        """Stand for a loop's hook."""

    plain_item = MarkedItem.from_parent(request.session, name="other")
    browser_item = MarkedItem.from_parent(request.session, name="browser")
    browser_item.add_marker(BROWSER_MARK)
    hooks_before = sys.get_asyncgen_hooks()
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)
    sys.set_asyncgen_hooks(finalize, finalize)
    try:
        with hide_loop_from(browser_item):
            assert asyncio.get_running_loop() is loop
            assert sys.get_asyncgen_hooks() == (finalize, finalize)
        with hide_loop_from(plain_item):
            assert sys.get_asyncgen_hooks() == (None, None)
            assert asyncio.run(done()) == "done"
        assert asyncio.get_running_loop() is loop
        assert sys.get_asyncgen_hooks() == (finalize, finalize)
    finally:
        sys.set_asyncgen_hooks(*hooks_before)
        asyncio._set_running_loop(None)
        loop.close()
