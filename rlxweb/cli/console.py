"""Console output of the commands: lines, tables and progress bars, drawn with rich.

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

from rlxweb.core.message_text import abbreviate, printable
from rlxweb.core.output_streams import discard_output

Cell = str | tuple[str, str]
"""Text of a table cell, or the text and its style."""

# Wider than any table that a pipe is asked to hold.
_UNBOUNDED_WIDTH = 1 << 20
# Of a terminal that does not know its own.
_DEFAULT_WIDTH = 80
# Cells of a word that is wrapped in itself, and between two columns.
_FOLD_WIDTH = 24
_COLUMN_GAP = 3
# Beside a bar there is no room for more of a file's name.
_MAX_NAME_WIDTH = 40


class _BrokenPipeConsole(Console):
    """Console that survives a closed pipe, on which rich would exit with code 1."""

    def on_broken_pipe(self) -> None:
        if not self.stderr:
            raise BrokenPipeError  # nobody waits for a result: the command ends well
        # What is told beside the work does not end the work.
        self.quiet = True
        discard_output(self.file.fileno())


def make_console(stderr: bool = False) -> Console:
    """Return a console for standard output or standard error that prints text
    literally: no markup, no emoji.

    What it leads to decides what is shown, and no variable such as FORCE_COLOR: a file
    gets every row and every column, and no escape codes.
    """
    console = _BrokenPipeConsole(
        stderr=stderr,
        force_terminal=(sys.stderr if stderr else sys.stdout).isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )
    if console.width < 1:  # COLUMNS=0, where rich would print nothing at all
        console.width = _DEFAULT_WIDTH
    return console


def print_lines(console: Console, *lines: str, style: str = "") -> None:
    """Print each line as it is, unwrapped; line breaks within a line are escaped."""
    text = "\n".join(map(printable, lines))
    console.print(Text(text, style=style), soft_wrap=True)


def format_count(n: int, noun: str) -> str:
    """Return a count with its noun: `1 row`, `2 rows`."""
    return f"{n} {noun}{'s' * (n != 1)}"


def print_table(
    console: Console,
    headers: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right_aligned: Sequence[str] = (),
    no_wrap: Sequence[str] = (),
    box: Box | None = SIMPLE_HEAD,
) -> None:
    """Print a table without truncation, split into several tables on a terminal too
    narrow for it.

    Each of several has the first column.

    right_aligned  heads of the columns that end on the right
    no_wrap  heads of the columns that are not wrapped, on however narrow a terminal
    """
    cells = [[*map(_styled_text, row)] for row in rows]
    columns = [*range(len(headers))]
    while columns:
        count = len(columns)
        while True:
            table = _build_table(
                headers, cells, columns[:count], right_aligned, no_wrap, box
            )
            measurement = _unwrapped_measurement(console, table)
            min_width = _min_table_width(headers, cells, columns[:count], no_wrap)
            fits = not console.is_terminal or min_width <= console.width
            if fits or count <= 2:
                break
            count -= 1
        _render_table(console, table, measurement, min_width)
        columns = columns[:1] + columns[count:] if count < len(columns) else []


def _build_table(
    headers: Sequence[str],
    cells: Sequence[Sequence[Text]],
    columns: Sequence[int],
    right_aligned: Sequence[str],
    no_wrap: Sequence[str],
    box: Box | None,
) -> Table:
    table = Table(box=box, pad_edge=False)
    for index in columns:
        header = headers[index]
        # rich cuts a column that may not wrap, unless it is told the width it needs.
        text_width = max([cell_len(header), *(row[index].cell_len for row in cells)])
        table.add_column(
            header,
            justify="right" if header in right_aligned else "left",
            no_wrap=header in no_wrap,
            min_width=text_width if header in no_wrap else None,
            overflow="fold",
        )
    for row in cells:
        table.add_row(*(row[index] for index in columns))
    return table


def _min_table_width(
    headers: Sequence[str],
    cells: Sequence[Sequence[Text]],
    columns: Sequence[int],
    no_wrap: Sequence[str],
) -> int:
    """Return the minimum width of the columns in terminal cells; long words are
    folded.
    """
    total = 0
    for index in columns:
        texts = [headers[index], *(row[index].plain for row in cells)]
        words = (
            texts
            if headers[index] in no_wrap
            else [w for t in texts for w in t.split()]
        )
        text_width = max(map(cell_len, words), default=0)
        total += (
            text_width if headers[index] in no_wrap else min(text_width, _FOLD_WIDTH)
        )
    return total + _COLUMN_GAP * len(columns)


def _unwrapped_measurement(console: Console, table: Table) -> Measurement:
    return console.measure(
        table,
        options=console.options.update(
            width=_UNBOUNDED_WIDTH, max_width=_UNBOUNDED_WIDTH
        ),
    )


def _render_table(
    console: Console, table: Table, measurement: Measurement, min_width: int
) -> None:
    width = console.width
    try:
        if console.is_terminal:
            console.width = max(width, min_width)
            console.print(table, crop=False)
        else:
            console.width = measurement.maximum
            # rich fills every cell; a reader of a pipe wants no blanks at line ends.
            lines = console.render_lines(table, pad=False)
            text = ("".join(segment.text for segment in line) for line in lines)
            console.print(
                Text("\n".join(line.rstrip() for line in text)), soft_wrap=True
            )
    finally:
        console.width = width


def _styled_text(cell: Cell) -> Text:
    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(printable(text), style=style)


class TaskDescriptionColumn(ProgressColumn):
    """Progress column that shows a task's description, or the result of its `said`
    field.
    """

    def render(self, task: Task) -> Text:
        get_text = task.fields.get("said", task.description.__str__)
        return Text(abbreviate(get_text(), _MAX_NAME_WIDTH))


def make_progress(
    console: Console, *columns: ProgressColumn, enabled: bool = True
) -> Progress:
    """Return a progress display that is shown on a terminal only and disappears at its
    end.

    Without `columns`: a bar with the share done and the time left.
    """
    enabled = enabled and console.is_terminal
    default_columns = (
        TaskDescriptionColumn(),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
    )
    return Progress(
        *columns or default_columns,
        # rich 13 ends even a disabled one with an empty line.
        console=console if enabled else Console(quiet=True),
        disable=not enabled,
        transient=True,
    )
