"""Registry rows with several libraries: tried in order, and none can do harm."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from rlxweb.core.errors import AdapterMissing
from rlxweb.engines.protocol import Engine
from rlxweb.engines.registry_row import (
    EngineLibrary,
    OpenEngine,
    Row,
    always_present,
    combined_absence_check,
    first_usable_opener,
    open_and_test,
)
from rlxweb.gpu.coroutine_runner import run_blocking
from tests.numpy_test_engine import NumpyTestEngine


def make_opener(make: Callable[[], Any]) -> OpenEngine:
    """Return an async opener that returns what `make` returns."""

    async def open_engine(adapter: str) -> Any:
        return make()

    return open_engine


def raising_function(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


WORKING_LIBRARY = EngineLibrary("Good", always_present, make_opener(NumpyTestEngine))
ABSENT_LIBRARY = EngineLibrary(
    "Absent",
    lambda: "Absent is not installed",
    make_opener(raising_function(KeyError("no"))),
)


def broken_library(make: Callable[[], Any]) -> EngineLibrary:
    """Return the candidate library "Broken", opened by `make`."""
    return EngineLibrary("Broken", always_present, make_opener(make))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            raising_function(ImportError("libfoo.so.12: no such file\nmore")),
            "libfoo.so.12",
        ),
        (raising_function(SystemExit(3)), r"SystemExit: 3"),
        (
            raising_function(RuntimeError("ABI 7, wanted 9")),
            "RuntimeError: ABI 7, wanted 9",
        ),
        (raising_function(AttributeError()), r"\(AttributeError\)"),
        (
            raising_function(AdapterMissing("look", "no GPU of that name")),
            "no GPU of that name",
        ),
        (
            lambda: NumpyTestEngine(result_offset=0.5),
            r"Made 1\.0 computes a wrong result: .*expected",
        ),
        (lambda: "an engine", "'an engine', which is not an engine"),
    ],
)
def test_next_library_is_used_and_the_reason_recorded(
    make: Callable[[], Any], words: str
) -> None:
    """A wrong result is a reason to skip a library, like a failed import."""
    engine = run_blocking(
        first_usable_opener("x", ABSENT_LIBRARY, broken_library(make), WORKING_LIBRARY)(
            ""
        )
    )
    assert engine.name == "Made 1.0"
    absent, broken = engine.skipped_libraries
    assert absent == ("Absent", "Absent is not installed")
    assert broken[0] == "Broken"
    with pytest.raises(AdapterMissing, match=f"open device 'x': Absent is.*{words}"):
        run_blocking(first_usable_opener("x", ABSENT_LIBRARY, broken_library(make))(""))


def test_library_error_is_cut_to_one_line() -> None:
    make = raising_function(ImportError("first\nsecond"))
    with pytest.raises(AdapterMissing) as caught:
        run_blocking(first_usable_opener("x", broken_library(make))(""))
    message = "Broken: it is installed but cannot be used (ImportError: first)"
    assert message in str(caught.value)
    assert caught.value.candidates[0][0] == "Broken"


def test_keyboard_interrupt_is_not_caught() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_blocking(
            open_and_test(broken_library(raising_function(KeyboardInterrupt())), "")
        )


def test_library_output_goes_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Standard output stays clean for a JSON report."""

    def open_printing_engine() -> Engine:
        print("hello from the library")
        return NumpyTestEngine()

    assert (
        run_blocking(open_and_test(broken_library(open_printing_engine), "")).name
        == "Made 1.0"
    )
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello from the library\n")
    assert sys.stdout is not sys.stderr


def test_missing_reasons_of_all_libraries() -> None:
    """Nothing is missing where one library and the common requirements are present."""
    assert combined_absence_check(ABSENT_LIBRARY, WORKING_LIBRARY)() == ""
    assert combined_absence_check(ABSENT_LIBRARY)() == "Absent is not installed"
    no_driver = combined_absence_check(
        ABSENT_LIBRARY, WORKING_LIBRARY, requirement=lambda: "no driver"
    )
    assert no_driver() == "no driver; Absent is not installed"


def test_failing_detection_is_a_reason() -> None:
    """Detection runs third-party code; its exception becomes the reason."""
    row = Row(
        WORKING_LIBRARY.open,
        present=raising_function(OSError("gone")),
        named_only=raising_function(OSError()),
    )
    assert "OSError: gone" in row.absence_reason()
    assert row.is_named_only()


def test_self_test_releases_everything() -> None:
    engine = NumpyTestEngine()
    run_blocking(open_and_test(broken_library(lambda: engine), ""))
    assert engine.runs == 1
    assert engine.live_programs == 0
