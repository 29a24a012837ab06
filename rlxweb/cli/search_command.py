"""`rlxweb search QUESTION FILE…`: the passages of text files nearest in meaning."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import say, screen
from rlxweb.cli.targets import check_targets, goes_to_stdout, write_all
from rlxweb.cli.text_files import (
    FILES,
    OPTIONS,
    as_json,
    indexed,
    place_of,
    said_of,
    where,
)
from rlxweb.io import write_json
from rlxweb.models.documents import files_of
from rlxweb.models.search import Hit, SearchIndex, check_question
from rlxweb.printable import ELLIPSIS, printable

SCHEMA = "rlxweb.search/1"
_LEAST_WIDTH = 40
_INDENT = " " * 7


@click.command(name="search")
@click.argument("question")
@FILES
@options.valued("--k", click.IntRange(1), "Passages to show.", 5)
@OPTIONS
@options.file_path("json", "The passages with their scores; - is stdout.")
@click.option("--full", is_flag=True, help="Show passages whole.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing.")
def command(
    question: str,
    files: tuple[str, ...],
    k: int,
    json_path: str | None,
    full: bool,
    quiet: bool,
    **asked: Any,
) -> None:
    """The passages of text files that are nearest to a question in meaning.

    A folder stands for the text files in it. Words need not be the same: "how do I get
    my money back" finds "refunds". What was embedded once is kept in the cache folder.
    Nothing leaves this machine.

    Example  rlxweb search "when is the garden watered" notes/ --k 3
    """
    check_question(question)
    meant = files_of(files)
    check_targets(meant, [("--json", json_path)], "text file")
    begun = perf_counter()
    index = indexed(meant, asked, quiet)
    device, adapter = where(asked)
    hits = index.search(question, k, device=device, adapter=adapter)
    took = perf_counter() - begun
    if json_path is not None:
        record = _record(question, index, hits, len(meant), took)
        write_all([(json_path, lambda file: write_json(file, record))])
    if not quiet:
        out = screen(stderr=goes_to_stdout((json_path,)))
        _show(out, hits, full)
        say(screen(stderr=True), said_of(index, len(meant), took), style="dim")


def _record(
    question: str, index: SearchIndex, hits: Sequence[Hit], files: int, took: float
) -> dict[str, Any]:
    found = [{"score": hit.score, **as_json(hit.passage)} for hit in hits]
    return document(
        SCHEMA,
        versions=versions(),
        question=question,
        model=index.model.name,
        files=files,
        passages=len(index.passages),
        wall_s=took,
        hits=found,
    )


def _show(out: Console, hits: Sequence[Hit], full: bool) -> None:
    """Score and place, then the passage: its beginning, or all of it."""
    width = max(_LEAST_WIDTH, out.width) - len(_INDENT)
    for hit in hits:
        say(out, f"{hit.score:5.2f}  {place_of(hit.passage)}", style="bold")
        if full:
            lines = [line.expandtabs() for line in hit.passage.text.split("\n")]
        else:
            text = printable(" ".join(hit.passage.text.split()))
            if cell_len(text) > width:
                text = set_cell_size(text, width - 1).rstrip() + ELLIPSIS
            lines = [text]
        say(out, *(f"{_INDENT}{line}" for line in lines))
