"""Name patterns that select smoke cases, and patterns that are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rlxweb.core.errors import UsageError
from rlxweb.smoke.case_name_pattern import parse_pattern
from rlxweb.smoke.suite import FAMILIES

NAMES = ("samples/softmax/3", "views/softmax/3/narrowed", "variants/fft/1/lane-a-row")


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", (0, 1, 2)),
        ("softmax", (0, 1)),
        ("SOFTMAX", (0, 1)),
        ("not softmax", (2,)),
        ("softmax and not views", (0,)),
        ("views or variants", (1, 2)),
        ("not (views or variants)", (0,)),
        ("fft or softmax and views", (1, 2)),
        ("samples/*", (0,)),
        ("*/softmax/?", (0,)),
        ("nothing", ()),
        ("orb or android", ()),
    ],
)
def test_patterns_select_cases(text: str, selected: tuple[int, ...]) -> None:
    """`and` binds before `or`; a glob matches the whole name, a word any part of it."""
    pattern = parse_pattern(text)
    assert tuple(index for index, name in enumerate(NAMES) if pattern(name)) == selected
    for name in (NAMES[index] for index in selected):
        assert all(pattern.may_match(name[:end]) for end in range(len(name) + 1))


@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("samples/exp/*", ["samples"]),
        ("Samples/exp/?", ["samples"]),
        ("s*/exp", ["samples", "special", "shapes"]),
        ("[v]iews/*", FAMILIES),
        ("*/softmax/?", FAMILIES),
        ("views/* or samples/exp/*", ["samples", "views"]),
        ("views/* and exp", ["views"]),
        ("views/* and samples/*", []),
        ("exp", FAMILIES),
        ("not views/*", FAMILIES),
    ],
)
def test_families_without_a_match_are_known(text: str, families: Sequence[str]) -> None:
    """Families without a match are known before their cases are built."""
    pattern = parse_pattern(text)
    assert {f for f in FAMILIES if pattern.may_match(f"{f}/")} == {*families}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("softmax and", "a word is missing at the end"),
        ("or fft", "a word is missing before 'or'"),
        ("(fft", "not closed"),
        ("fft)", "expected 'and' or 'or', got ')'"),
        ("soft max", "expected 'and' or 'or', got 'max'"),
        ("not", "a word is missing at the end"),
    ],
)
def test_malformed_patterns_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match="-k ") as error_info:
        parse_pattern(text)
    assert message in str(error_info.value)
