"""How commands speak to people: lines, tables and progress. rich does the drawing.

The one door to the terminal: whatever is shown goes through here and is made printable
here, so that no name and no driver's message can steer a terminal or forge a line. A
reader of a pipe gets every table at its full width; on a terminal long cells wrap.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from rlxweb.printable import abridged, printable
from rlxweb.streams import discard

Cell = str | tuple[str, str]
"""The text of a cell, or the text and its style."""

# Wider than any table that a pipe is asked to hold.
_WIDEST = 1 << 20
# Of a terminal that does not know its own.
_UNKNOWN_WIDTH = 80
# Cells of a word that is wrapped in itself, and between two columns.
_FOLDED = 24
_BETWEEN = 3
# Beside a bar there is no room for more of a file's name.
_MOST_NAME = 40


class _Screen(Console):
    """A console that may lose its reader: rich would end the process with exit 1."""

    def on_broken_pipe(self) -> None:
        if not self.stderr:
            raise BrokenPipeError  # nobody waits for a result: the command ends well
        # What is told beside the work does not end the work.
        self.quiet = True
        discard(self.file.fileno())


def screen(stderr: bool = False) -> Console:
    """Standard output, or standard error, where text is text: no markup, no emoji.

    What it leads to decides what is shown, and no variable such as FORCE_COLOR: a file
    gets every row and every column, and no escape codes.
    """
    console = _Screen(
        stderr=stderr,
        force_terminal=(sys.stderr if stderr else sys.stdout).isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )
    if console.width < 1:  # COLUMNS=0, where rich would print nothing at all
        console.width = _UNKNOWN_WIDTH
    return console


def say(console: Console, *lines: str, style: str = "") -> None:
    """Each line as it stands, not wrapped; a line break inside is no new line."""
    text = "\n".join(map(printable, lines))
    console.print(Text(text, style=style), soft_wrap=True)


def counted(n: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{n} {noun}{'s' * (n != 1)}"


def show_table(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    frame: Box | None = SIMPLE_HEAD,
) -> None:
    """A table with nothing cut off; several on a terminal that is too narrow for it.

    Each of several has the first column.

    right   heads of the columns that end on the right
    whole   heads of the columns that are not wrapped, on however narrow a terminal
    """
    cells = [[*map(_text, row)] for row in rows]
    columns = [*range(len(heads))]
    while columns:
        count = len(columns)
        while True:
            table = _table(heads, cells, columns[:count], right, whole, frame)
            need = _need(console, table)
            least = _least(heads, cells, columns[:count], whole)
            fits = not console.is_terminal or least <= console.width
            if fits or count <= 2:
                break
            count -= 1
        _print_table(console, table, need, least)
        columns = columns[:1] + columns[count:] if count < len(columns) else []


def _table(
    heads: Sequence[str],
    cells: Sequence[Sequence[Text]],
    columns: Sequence[int],
    right: Sequence[str],
    whole: Sequence[str],
    frame: Box | None,
) -> Table:
    table = Table(box=frame, pad_edge=False)
    for at in columns:
        head = heads[at]
        # rich cuts a column that may not wrap, unless it is told the width it needs.
        widest = max([cell_len(head), *(row[at].cell_len for row in cells)])
        table.add_column(
            head,
            justify="right" if head in right else "left",
            no_wrap=head in whole,
            min_width=widest if head in whole else None,
            overflow="fold",
        )
    for row in cells:
        table.add_row(*(row[at] for at in columns))
    return table


def _least(
    heads: Sequence[str],
    cells: Sequence[Sequence[Text]],
    columns: Sequence[int],
    whole: Sequence[str],
) -> int:
    """Cells of a line that the columns take at least; a long word is folded."""
    total = 0
    for at in columns:
        texts = [heads[at], *(row[at].plain for row in cells)]
        words = texts if heads[at] in whole else [w for t in texts for w in t.split()]
        widest = max(map(cell_len, words), default=0)
        total += widest if heads[at] in whole else min(widest, _FOLDED)
    return total + _BETWEEN * len(columns)


def _need(console: Console, table: Table) -> Measurement:
    return console.measure(
        table, options=console.options.update(width=_WIDEST, max_width=_WIDEST)
    )


def _print_table(console: Console, table: Table, need: Measurement, least: int) -> None:
    width = console.width
    try:
        if console.is_terminal:
            console.width = max(width, least)
            console.print(table, crop=False)
        else:
            console.width = need.maximum
            # rich fills every cell; a reader of a pipe wants no blanks at line ends.
            lines = console.render_lines(table, pad=False)
            text = ("".join(part.text for part in line) for line in lines)
            console.print(
                Text("\n".join(line.rstrip() for line in text)), soft_wrap=True
            )
    finally:
        console.width = width


def _text(cell: Cell) -> Text:
    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(printable(text), style=style)


class Description(ProgressColumn):
    """What is being worked on; where a task has the field `said`, what that gives."""

    def render(self, task: Task) -> Text:
        said = task.fields.get("said", task.description.__str__)
        return Text(abridged(said(), _MOST_NAME))


def progress_on(
    console: Console, *columns: ProgressColumn, shown: bool = True
) -> Progress:
    """Progress on a terminal, and silence elsewhere; it goes when it ends.

    Without `columns`: a bar with the share done and the time left.
    """
    shown = shown and console.is_terminal
    bar = (
        Description(),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns or bar,
        # rich 13 ends even a disabled one with an empty line.
        console=console if shown else Console(quiet=True),
        disable=not shown,
        transient=True,
    )
