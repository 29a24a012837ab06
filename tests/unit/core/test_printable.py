"""Untrusted text is escaped for display and stays readable."""

from __future__ import annotations

import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlxweb.core.errors import DeviceLost, RecordingError, RecordingWarning, RlxError
from rlxweb.core.message_text import abbreviate, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Fp1-O2 µV 脳波 Ωé", "Fp1-O2 µV 脳波 Ωé"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x9b2J\x7f\x85", r"\x9b2J\x7f\x85"),
        ("\u202ea\u2066b\u200f", r"\u202ea\u2066b\u200f"),
        ("\u2028\u200b\ufeff", r"\u2028\u200b\ufeff"),
        (os.fsdecode(b"caf\xe9.edf"), r"caf\xe9.edf"),
        ("\ud800", r"\ud800"),
        ("wide\u3000space and\xa0hard", "wide\u3000space and\xa0hard"),
        ("\u0646\u200c\u0647", "\u0646\u200c\u0647"),  # a joiner that is spelling
        ("", ""),
    ],
)
def test_terminal_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(codec=None)))
def test_printable_text_has_no_control_characters_and_encodes(text: str) -> None:
    """No control, format, surrogate or separator character remains except the two
    joiners.
    """
    shown = printable(text)
    shown.encode("utf-8")
    hidden = {c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl")}
    assert hidden <= {"\u200c", "\u200d"}
    assert printable(shown) == shown


@given(st.text(), st.integers(1, 30))
def test_an_abridged_name_keeps_its_ends(text: str, max_length: int) -> None:
    short, full = abbreviate(text, max_length), printable(text)
    assert len(short) <= max_length
    head, gap, tail = short.partition("…")
    assert short == full or (gap and full.startswith(head) and full.endswith(tail))


def test_messages_are_printable() -> None:
    """Messages are printable in all their parts; the fields keep the original text.

    A driver's message may have several lines, a file's name may not.
    """
    for error, shown in ((RlxError, r"\n"), (DeviceLost, "\n")):
        raised = error("a\x1b[2J", "b\u202e\nc", "d\x9b", "e\x07")
        assert str(raised) == rf"a\x1b[2J: b\u202e{shown}c; d\x9b; e\x07"
        assert raised.problem == "b\u202e\nc"
    assert str(RecordingError("", os.fsdecode(b"\xff"))) == r"\xff"
    assert str(RecordingWarning("reading 'x': \x1b\n")) == r"reading 'x': \x1b\n"
