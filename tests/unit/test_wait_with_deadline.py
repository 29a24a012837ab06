"""Wait helpers of the tests return what they wait for, or fail the test by its name at
the deadline.
"""

from __future__ import annotations

import os
import threading

import pytest

from tests.wait_with_deadline import next_line, wait_until


def test_a_condition_is_polled_until_it_is_true() -> None:
    values = iter([False, 0, "", "so"])
    wait_until(lambda: next(values), "it is so", poll_s=0.001)
    assert next(values, "no more") == "no more"


def test_a_condition_that_stays_false_fails_with_its_name() -> None:
    message = "after 0 s it is not so that pigs fly"
    with pytest.raises(pytest.fail.Exception, match=message):
        wait_until(lambda: False, "pigs fly", deadline_s=0)


def test_next_line_waits_and_fails_by_name() -> None:
    """A line is returned once it comes; the end is an empty line, and silence fails
    with what was awaited.
    """
    reader, writer = os.pipe()
    with open(reader) as lines, open(writer, "w") as stream:
        threading.Timer(0.1, lambda: print("a line", file=stream, flush=True)).start()
        assert next_line(lines, "a word") == "a line\n"
        with pytest.raises(pytest.fail.Exception, match=r"no line .* with an address"):
            next_line(lines, "an address", deadline_s=0.1)
        stream.close()
        assert next_line(lines, "the end") == ""
