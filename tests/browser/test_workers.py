"""Products with weights that Workers share with Python, in a page and in a Worker."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Tab

pytestmark = pytest.mark.requires_browser

IMPORTED = "from tests.browser.inside import shared_products\n"
NEAR = 1e-4


def test_the_pages_are_isolated(tab: Tab) -> None:
    """The pages are isolated by the headers that the site's hosts send."""
    assert tab.run("import js\njson.dumps(js.crossOriginIsolated)")


def test_workers_take_part_and_the_answers_are_right(tab: Tab) -> None:
    """Workers take part in both products of a run, with the bits of one thread."""
    for off, jobs, is_same in tab.run(f"{IMPORTED}await shared_products.products()"):
        assert off < NEAR
        assert jobs == 2
        assert is_same


def test_the_memory_of_weights_is_given_back(tab: Tab) -> None:
    """The memory of weights is given back, and weights set anew are the new ones."""
    before, within, after, off = tab.run(f"{IMPORTED}await shared_products.memory()")
    assert within > before
    assert after < within
    assert off < NEAR


def test_a_job_that_breaks_is_done_without_them(tab: Tab) -> None:
    """The answer is right, and they are not asked again."""
    broken, again, *off = tab.run(f"{IMPORTED}await shared_products.faults()")
    assert broken >= 1
    assert again == 0
    assert max(off) < NEAR


def test_a_page_that_is_not_isolated_computes_alone(tab: Tab) -> None:
    is_none, jobs, off = tab.run(f"{IMPORTED}shared_products.alone()")
    assert is_none
    assert jobs == 0
    assert off < NEAR
