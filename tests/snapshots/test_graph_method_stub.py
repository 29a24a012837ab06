"""The stub file of Graph's methods is what the op records say."""

from __future__ import annotations

import re

from tests.graph_method_stub import STUB_FILE, stub_text


def test_the_stub_lists_the_methods_of_the_records() -> None:
    """Run `python -m tests.graph_method_stub` where this fails."""
    assert _without_layout(STUB_FILE.read_text("utf-8")) == _without_layout(stub_text())


def _without_layout(text: str) -> str:
    """Leave out what a formatter moves: whitespace and trailing commas."""
    return re.sub(r",\)", ")", re.sub(r"\s+", "", text))
