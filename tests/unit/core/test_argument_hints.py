"""Advice is worded for Python and for the command line."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from pathlib import Path

import pytest

from rlxweb.core.errors import UsageError
from rlxweb.core.message_text import Advice, Blank

FLAG_PATTERN = re.compile(r"(?<![`\w-])--[a-z]{2}")


@pytest.mark.parametrize(
    ("advice", "python", "flags"),
    [
        (Advice("give {}", fs=Blank("HZ")), "give fs=HZ", "give --fs HZ"),
        (
            Advice("pass {}, or leave {} out", precision="f32", min_segments=3),
            "pass precision='f32', or leave min_segments=3 out",
            "pass --precision f32, or leave --min-segments 3 out",
        ),
        (
            Advice("{}", adapter="RTX 4090"),
            "adapter='RTX 4090'",
            "--adapter 'RTX 4090'",
        ),
        (Advice("or {}", force=True), "or force=True", "or --force"),
        (Advice("use more memory"), "use more memory", "use more memory"),
    ],
)
def test_an_argument_is_a_python_keyword_or_a_flag(
    advice: Advice, python: str, flags: str
) -> None:
    assert advice == python
    assert advice.as_flags == flags
    for same in (copy.copy(advice), pickle.loads(pickle.dumps(advice))):
        assert (same, same.as_flags) == (python, flags)


def test_another_step_is_named_before_an_argument() -> None:
    """Advice names the other step at the right one of several arguments."""
    advice = Advice("leave {} out, or use {}", precision="f64", device="cpu")
    expected = "leave precision='f64' out, or use x.numpy() and device='cpu'"
    assert advice.before("device", "x.numpy()") == expected
    assert advice.before("precision", "all").startswith("leave all and precision='f64'")
    assert advice.before("k", "x.numpy()") is advice


def test_a_message_is_worded_for_python_or_the_command_line() -> None:
    error = UsageError(
        "reading", "no rate", "it needs one", Advice("{}", fs=Blank("HZ"))
    )
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert str(same) == "reading: no rate; it needs one; fs=HZ"
        assert same.with_flags == "reading: no rate; it needs one; --fs HZ"
    assert UsageError("reading", "no {} rate").with_flags == "reading: no {} rate"


def test_no_module_below_the_command_line_names_a_flag() -> None:
    """No flag is named below the command line; an `Advice` has both wordings."""
    package = Path(__file__).resolve().parents[3] / "rlxweb"
    violations = [
        f"{path.relative_to(package)}:{node.lineno}: {node.value!r}"
        for path in sorted(package.rglob("*.py"))
        if "cli" not in path.parts
        if FLAG_PATTERN.search(text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if FLAG_PATTERN.search(node.value) and "\n" not in node.value
    ]
    assert violations == []
