"""The loop of Playwright, which tests without a browser do not see."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.hidden_loop import OWNER, hidden_from


def test_only_tests_with_a_browser_see_the_loop_of_playwright() -> None:
    """`asyncio.run` works where the loop is hidden; it is back afterwards."""

    async def done() -> str:
        return "done"

    loop = asyncio.new_event_loop()
    other: Any = SimpleNamespace(fixturenames=["tmp_path"])
    browser: Any = SimpleNamespace(fixturenames=["page", OWNER])
    asyncio._set_running_loop(loop)
    try:
        with hidden_from(browser):
            assert asyncio.get_running_loop() is loop
        with hidden_from(other):
            assert asyncio.run(done()) == "done"
        assert asyncio.get_running_loop() is loop
    finally:
        asyncio._set_running_loop(None)
        loop.close()
