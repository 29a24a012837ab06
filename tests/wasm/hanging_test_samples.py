"""Two tests that hang on purpose, in a file that pytest does not collect: samples for
the test of the deadline in WebAssembly.
"""

from __future__ import annotations


def test_in_python() -> None:
    while True:
        pass


def test_outside_of_python() -> None:
    from js import eval as run

    run("for (;;) {}")
