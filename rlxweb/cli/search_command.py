"""`rlxweb search QUESTION FILE…`: the passages of text files nearest in meaning."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from time import perf_counter
from typing import IO, Any

import click
from rich.console import Console

from rlxweb.cli import options
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import counted, say, screen
from rlxweb.cli.targets import check_targets, goes_to_stdout, write_all
from rlxweb.cli.text_files import FILES, OPTIONS, indexed, place_of, where
from rlxweb.io import write_json
from rlxweb.jobs.entries import text_of
from rlxweb.models.documents import files_of
from rlxweb.models.search import Hit, SearchIndex

SCHEMA = "rlxweb.search/1"
_LEAST_WIDTH = 40


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
    meant = files_of(files)
    check_targets(meant, [("--json", json_path)])
    begun = perf_counter()
    index = indexed(meant, asked, quiet)
    device, adapter = where(asked)
    hits = index.search(question, k, device=device, adapter=adapter)
    took = perf_counter() - begun
    if json_path is not None:
        record = _record(question, index, hits, len(meant), took)
        write_all([(json_path, lambda f: _put(f, record))])
    if not quiet:
        out = screen(stderr=goes_to_stdout((json_path,)))
        _show(out, hits, full)
        _tell(screen(stderr=True), index, len(meant), took)


def _put(file: IO[bytes], record: dict[str, Any]) -> None:
    write_json(file, record)


def _record(
    question: str, index: SearchIndex, hits: Sequence[Hit], files: int, took: float
) -> dict[str, Any]:
    found = [
        {
            "score": hit.score,
            "path": text_of(hit.passage.path),
            "line": hit.passage.line,
            "text": hit.passage.text,
        }
        for hit in hits
    ]
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
    width = max(_LEAST_WIDTH, shutil.get_terminal_size().columns) - 6
    for hit in hits:
        say(out, f"{hit.score:5.2f}  {place_of(hit.passage)}", style="bold")
        if full:
            lines = hit.passage.text.split("\n")
        else:
            text = " ".join(hit.passage.text.split())
            lines = [text if len(text) <= width else f"{text[: width - 1]}…"]
        say(out, *(f"       {line}" for line in lines))


def _tell(err: Console, index: SearchIndex, files: int, took: float) -> None:
    kept = f", {index.cached} from the cache" if index.cached else ""
    said = f"{counted(len(index.passages), 'passage')} of {counted(files, 'file')}"
    say(err, f"{said}{kept}: {took:.2f} s", style="dim")
