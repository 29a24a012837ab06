"""Check matrix products with weights that Web Workers share with Python, in a page and
in a Worker.
"""

from __future__ import annotations

import pytest

from tests.browser.conftest import Tab

pytestmark = pytest.mark.requires_browser

IMPORT_CODE = "from tests.browser.inside import web_worker_matmul\n"
MAX_ERROR = 1e-4


def test_the_pages_are_isolated(tab: Tab) -> None:
    """The pages are isolated by the headers that the site's hosts send."""
    assert tab.run("import js\njson.dumps(js.crossOriginIsolated)")


def test_workers_take_part_and_the_answers_are_right(tab: Tab) -> None:
    """Workers take part in both products of a run, with the bits of one thread."""
    for error, jobs, is_same in tab.run(
        f"{IMPORT_CODE}await web_worker_matmul.products()"
    ):
        assert error < MAX_ERROR
        assert jobs == 2
        assert is_same


def test_weight_memory_is_released(tab: Tab) -> None:
    """The memory of weights is released, and newly set weights are used."""
    before, during, after, error = tab.run(
        f"{IMPORT_CODE}await web_worker_matmul.memory()"
    )
    assert during > before
    assert after < during
    assert error < MAX_ERROR


def test_failed_worker_job_falls_back_to_one_thread(tab: Tab) -> None:
    """The answer is right when a job fails in the Workers, and they are not used
    again.
    """
    failed_jobs, later_jobs, *errors = tab.run(
        f"{IMPORT_CODE}await web_worker_matmul.faults()"
    )
    assert failed_jobs >= 1
    assert later_jobs == 0
    assert max(errors) < MAX_ERROR


def test_unisolated_page_uses_no_workers(tab: Tab) -> None:
    is_none, jobs, error = tab.run(f"{IMPORT_CODE}web_worker_matmul.alone()")
    assert is_none
    assert jobs == 0
    assert error < MAX_ERROR
