"""The loop of Playwright, which tests without a browser do not see."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.hidden_loop import MARK, hidden_from


class Marked(pytest.Item):
    """A test that has only the marks it is given."""

    def runtest(self) -> None:
        """Do nothing."""


def test_only_tests_with_a_browser_see_the_loop_of_playwright(
    request: pytest.FixtureRequest,
) -> None:
    """`asyncio.run` works where loop and hooks are hidden; both are back afterwards."""

    async def done() -> str:
        return "done"

    def forget(generator: AsyncGenerator[Any]) -> None:
        """Stand for a loop's hook."""

    other = Marked.from_parent(request.session, name="other")
    browser = Marked.from_parent(request.session, name="browser")
    browser.add_marker(MARK)
    before = sys.get_asyncgen_hooks()
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)
    sys.set_asyncgen_hooks(forget, forget)
    try:
        with hidden_from(browser):
            assert asyncio.get_running_loop() is loop
            assert sys.get_asyncgen_hooks() == (forget, forget)
        with hidden_from(other):
            assert sys.get_asyncgen_hooks() == (None, None)
            assert asyncio.run(done()) == "done"
        assert asyncio.get_running_loop() is loop
        assert sys.get_asyncgen_hooks() == (forget, forget)
    finally:
        sys.set_asyncgen_hooks(*before)
        asyncio._set_running_loop(None)
        loop.close()
