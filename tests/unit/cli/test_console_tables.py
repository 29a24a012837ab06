"""Console tables of all commands: nothing is cut off, however narrow the terminal."""

from __future__ import annotations

import io
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from rlxweb.cli.console import print_table

CELL_TEXTS = st.sampled_from(
    ["", "softmax", "1024×256", "the pick", "脳波 x", "a b c", "1.88 s", "x" * 50]
)
TABLE_COLUMNS = st.lists(
    st.lists(CELL_TEXTS, min_size=3, max_size=3), min_size=3, max_size=8
)


@given(
    columns=TABLE_COLUMNS,
    width=st.sampled_from([0, 10, 40, 60, 80]),
    whole=st.sampled_from([set(), {1, 2}, {0, 1, 2, 4, 5}, set(range(8))]),
)
def test_tables_show_every_letter(
    columns: list[list[str]], width: int, whole: set[int]
) -> None:
    """Cells wrap where they may; a width of 0 stands for a pipe, where nothing
    wraps.
    """
    heads = [f"head {n}" for n in range(len(columns))]
    rows = list(zip(*columns, strict=True))
    text = io.StringIO()
    console = Console(
        file=text,
        width=width or 80,
        force_terminal=width > 0,
        color_system=None,
    )
    print_table(console, heads, rows, no_wrap=[h for h in heads if int(h[-1]) in whole])
    output = text.getvalue()
    # Each part of a table has the first column.
    first = "".join([heads[0], *columns[0]])
    rest = "".join([*heads[1:], *map("".join, columns[1:])])
    expected_counts = [
        Counter((n * first + rest).replace(" ", "")) for n in range(1, 9)
    ]
    got = Counter(output)
    assert {letter: got[letter] for letter in expected_counts[0]} in expected_counts
    for index, column in enumerate(columns):
        if index in whole or not width:
            assert all(cell in output for cell in column)


@given(columns=TABLE_COLUMNS, width=st.sampled_from([0, 10, 70, 110]))
def test_split_tables_fit_the_terminal(columns: list[list[str]], width: int) -> None:
    """Parts of a table repeat the first column; others are shown once, unwrapped."""
    heads = [f"head {n}" for n in range(len(columns))]
    rows = list(zip(*columns, strict=True))
    text = io.StringIO()
    console = Console(
        file=text, width=width or 80, force_terminal=width > 0, color_system=None
    )
    print_table(console, heads, rows, no_wrap=heads)
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
