"""Two tests that hang, of no name that pytest looks for; test_wasm.py runs them."""

from __future__ import annotations


def test_in_python() -> None:
    while True:
        pass


def test_where_python_is_not_heard() -> None:
    from js import eval as run

    run("for (;;) {}")
