"""Waits with a deadline return what they wait for, or fail the test by its name."""

from __future__ import annotations

import os
import threading

import pytest

from tests.waiting import next_line, until


def test_a_condition_is_looked_at_until_it_is_true() -> None:
    looks = iter([False, 0, "", "so"])
    until(lambda: next(looks), "it is so", look_s=0.001)
    assert next(looks, "no more") == "no more"


def test_a_condition_that_stays_false_fails_with_its_name() -> None:
    said = "after 0 s it is not so that pigs fly"
    with pytest.raises(pytest.fail.Exception, match=said):
        until(lambda: False, "pigs fly", deadline_s=0)


def test_a_line_is_waited_for() -> None:
    """Then the end is an empty line, and silence fails with what was awaited."""
    reader, writer = os.pipe()
    with open(reader) as lines, open(writer, "w") as other:
        threading.Timer(0.1, lambda: print("a line", file=other, flush=True)).start()
        assert next_line(lines, "a word") == "a line\n"
        with pytest.raises(pytest.fail.Exception, match=r"no line .* with an address"):
            next_line(lines, "an address", deadline_s=0.1)
        other.close()
        assert next_line(lines, "the end") == ""
