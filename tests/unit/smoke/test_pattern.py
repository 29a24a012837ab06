"""Which cases a pattern means, and which patterns mean nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rlxweb.errors import UsageError
from rlxweb.smoke.pattern import pattern_of
from rlxweb.smoke.suite import FAMILIES

NAMES = ("samples/softmax/3", "views/softmax/3/narrowed", "variants/fft/1/lane-a-row")


@pytest.mark.parametrize(
    ("text", "meant"),
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
def test_what_is_meant(text: str, meant: tuple[int, ...]) -> None:
    """`and` binds before `or`; a pattern is of the whole name, a word of any part."""
    pattern = pattern_of(text)
    assert tuple(at for at, name in enumerate(NAMES) if pattern(name)) == meant
    for name in (NAMES[at] for at in meant):
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
def test_families_that_cannot_be_meant_are_known(
    text: str, families: Sequence[str]
) -> None:
    """Nobody need make their cases, which takes longer than to run a few."""
    pattern = pattern_of(text)
    assert {f for f in FAMILIES if pattern.may_match(f"{f}/")} == {*families}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("softmax and", "a word is missing"),
        ("or fft", "a word is missing before 'or'"),
        ("(fft", "not closed"),
        ("fft)", "')' stands where"),
        ("soft max", "'max' stands where 'and' or 'or' would"),
        ("not", "a word is missing"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match="-k ") as refused:
        pattern_of(text)
    assert words in str(refused.value)
