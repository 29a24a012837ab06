"""Tables of all commands: nothing is cut off, however narrow the terminal."""

from __future__ import annotations

import io
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from rlxweb.cli.screen import show_table

CELLS = st.sampled_from(
    ["", "softmax", "1024×256", "the pick", "脳波 x", "a b c", "1.88 s", "x" * 50]
)
COLUMNS = st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=3, max_size=8)


@given(
    columns=COLUMNS,
    width=st.sampled_from([0, 10, 40, 60, 80]),
    whole=st.sampled_from([set(), {1, 2}, {0, 1, 2, 4, 5}, set(range(8))]),
)
def test_no_table_loses_a_letter(
    columns: list[list[str]], width: int, whole: set[int]
) -> None:
    """Cells wrap where they may; a width of 0 stands for a pipe, where none does."""
    heads = [f"head {n}" for n in range(len(columns))]
    rows = list(zip(*columns, strict=True))
    text = io.StringIO()
    console = Console(
        file=text,
        width=width or 80,
        force_terminal=width > 0,
        color_system=None,
    )
    show_table(console, heads, rows, whole=[h for h in heads if int(h[-1]) in whole])
    shown = text.getvalue()
    # Each part of a table has the first column.
    first = "".join([heads[0], *columns[0]])
    rest = "".join([*heads[1:], *map("".join, columns[1:])])
    wanted = [Counter((n * first + rest).replace(" ", "")) for n in range(1, 9)]
    got = Counter(shown)
    assert {letter: got[letter] for letter in wanted[0]} in wanted
    for at, column in enumerate(columns):
        if at in whole or not width:
            assert all(cell in shown for cell in column)


@given(columns=COLUMNS, width=st.sampled_from([0, 10, 70, 110]))
def test_a_table_in_parts_keeps_to_the_terminal(
    columns: list[list[str]], width: int
) -> None:
    """Parts of a table repeat the first column; others are shown once, unwrapped."""
    heads = [f"head {n}" for n in range(len(columns))]
    rows = list(zip(*columns, strict=True))
    text = io.StringIO()
    console = Console(
        file=text, width=width or 80, force_terminal=width > 0, color_system=None
    )
    show_table(console, heads, rows, whole=heads)
    lines = text.getvalue().splitlines()
    parts = [line.split("head")[1:] for line in lines if "head" in line]
    assert [part[0].strip() for part in parts] == ["0"] * len(parts)
    others = [int(number) for part in parts for number in part[1:]]
    assert others == [*range(1, len(columns))]
    assert all(cell in text.getvalue() for column in columns for cell in column)
    if not width:
        assert len(parts) == 1
    if width >= 110:  # the widest two of these beside each other
        assert max(cell_len(line) for line in lines) <= width
