"""Rows with several libraries: tried in turn, and none of them can do harm."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from rlxweb.backends.protocol import Backend
from rlxweb.backends.row import Open, Row, Way, any_of, in_turn, nothing_missing, safely
from rlxweb.errors import AdapterMissing
from rlxweb.gpu.drive import drive
from tests.made_engine import MadeEngine


def opens(make: Callable[[], Any]) -> Open:
    async def open_it(adapter: str) -> Any:
        return make()

    return open_it


def raises(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


GOOD = Way("Good", nothing_missing, opens(MadeEngine))
ABSENT = Way("Absent", lambda: "Absent is not installed", opens(raises(KeyError("no"))))


def way(make: Callable[[], Any]) -> Way:
    return Way("Broken", nothing_missing, opens(make))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (raises(ImportError("libfoo.so.12: no such file\nmore")), "libfoo.so.12"),
        (raises(SystemExit(3)), r"SystemExit: 3"),
        (raises(RuntimeError("ABI 7, wanted 9")), "RuntimeError: ABI 7, wanted 9"),
        (raises(AttributeError()), r"\(AttributeError\)"),
        (raises(AdapterMissing("look", "no GPU of that name")), "no GPU of that name"),
        (lambda: MadeEngine(off=0.5), r"Made 1\.0 computes wrong: .* is right"),
        (lambda: "an engine", "'an engine', which is no engine"),
    ],
)
def test_the_next_library_serves_and_the_reason_is_kept(
    make: Callable[[], Any], words: str
) -> None:
    """A wrong answer is a reason as much as an import that fails."""
    backend = drive(in_turn("x", ABSENT, way(make), GOOD)(""))
    assert backend.name == "Made 1.0"
    absent, broken = backend.passed_over
    assert absent == ("Absent", "Absent is not installed")
    assert broken[0] == "Broken"
    with pytest.raises(AdapterMissing, match=f"open device 'x': Absent is.*{words}"):
        drive(in_turn("x", ABSENT, way(make))(""))


def test_an_error_has_one_line_however_much_a_library_says() -> None:
    make = raises(ImportError("first\nsecond"))
    with pytest.raises(AdapterMissing) as caught:
        drive(in_turn("x", way(make))(""))
    said = "Broken: it is installed and cannot be used (ImportError: first)"
    assert said in str(caught.value)
    assert caught.value.candidates[0][0] == "Broken"


def test_ctrl_c_is_no_broken_library() -> None:
    with pytest.raises(KeyboardInterrupt):
        drive(safely(way(raises(KeyboardInterrupt())), ""))


def test_what_a_library_prints_stays_out_of_the_results(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A JSON report goes to standard output."""

    def noisy() -> Backend:
        print("hello from the library")
        return MadeEngine()

    assert drive(safely(way(noisy), "")).name == "Made 1.0"
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello from the library\n")
    assert sys.stdout is not sys.stderr


def test_what_is_missing_is_told_of_all() -> None:
    """Nothing is missing where one way and what all ways need is there."""
    assert any_of(ABSENT, GOOD)() == ""
    assert any_of(ABSENT)() == "Absent is not installed"
    no_driver = any_of(ABSENT, GOOD, needs=lambda: "no driver")
    assert no_driver() == "no driver; Absent is not installed"


def test_a_look_that_fails_is_a_reason() -> None:
    """A stranger's code runs when a row is looked at."""
    row = Row(GOOD.open, present=raises(OSError("gone")), named_only=raises(OSError()))
    assert "OSError: gone" in row.why_absent()
    assert row.is_named_only()


def test_the_proof_leaves_nothing_behind() -> None:
    engine = MadeEngine()
    drive(safely(way(lambda: engine), ""))
    assert engine.runs == 1
    assert engine.held == 0
