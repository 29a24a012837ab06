"""`rlxweb embed FILE…`: passages of text files as points, for programs of your own."""

from __future__ import annotations

from time import perf_counter
from typing import IO, Any

import click
import numpy as np

from rlxweb.cli import options
from rlxweb.cli.record import document, versions
from rlxweb.cli.screen import say, screen
from rlxweb.cli.targets import Put, check_targets, goes_to_stdout, write_all
from rlxweb.cli.text_files import FILES, OPTIONS, as_json, indexed, said_of
from rlxweb.errors import UsageError
from rlxweb.io import write_json, write_npz
from rlxweb.jobs.entries import text_of
from rlxweb.models.documents import files_of
from rlxweb.models.search import SearchIndex

SCHEMA = "rlxweb.embed/1"
_MOST_TEXT = 1 << 30


@click.command(name="embed")
@FILES
@OPTIONS
@options.file_path("npz", "Points, with path, line and text of each passage.")
@options.file_path("json", "The same as JSON; - is stdout.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing.")
def command(
    files: tuple[str, ...],
    npz_path: str | None,
    json_path: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Passages of text files as points: what is alike in meaning lies near.

    A point is 384 numbers of length 1; the product of two is how alike they are. A
    folder stands for the text files in it. Nothing leaves this machine.

    Example  rlxweb embed notes/ --by line --npz points.npz
    """
    if npz_path is None and json_path is None:
        hint = "give --npz or --json"
        raise UsageError("rlxweb embed", "no output is asked for", hint=hint)
    meant = files_of(files)
    check_targets(meant, [("--npz", npz_path), ("--json", json_path)], "text file")
    begun = perf_counter()
    index = indexed(meant, asked, quiet)
    took = perf_counter() - begun
    write_all(_puts(index, npz_path, json_path, took))
    if not quiet:
        out = screen(stderr=goes_to_stdout((npz_path, json_path)))
        say(out, said_of(index, len(meant), took))


def _puts(
    index: SearchIndex, npz: str | None, json: str | None, took: float
) -> list[tuple[str, Put]]:
    puts: list[tuple[str, Put]] = []
    if npz is not None:
        puts.append((npz, lambda file: _put_npz(file, index)))
    if json is not None:
        puts.append((json, lambda file: _put_json(file, index, took)))
    return puts


def _put_npz(file: IO[bytes], index: SearchIndex) -> None:
    longest = max((len(one.text) for one in index.passages), default=0)
    nbytes = 4 * longest * len(index.passages)  # NumPy gives all the longest's width
    if nbytes > _MOST_TEXT:
        raise UsageError(
            "--npz",
            f"texts take {nbytes:,} bytes, the longest has {longest:,} letters",
            f"at most {_MOST_TEXT:,}",
            "write --json, or take smaller passages with --by line",
        )
    write_npz(
        file,
        points=index.points,
        path=np.array([text_of(one.path) for one in index.passages], np.str_),
        line=np.array([one.line for one in index.passages], np.int64),
        text=np.array([one.text for one in index.passages], np.str_),
    )


def _put_json(file: IO[bytes], index: SearchIndex, took: float) -> None:
    passages = [
        {**as_json(one), "point": row}
        for one, row in zip(index.passages, index.points.tolist(), strict=True)
    ]
    facts = {"model": index.model.name, "passages": passages, "wall_s": took}
    write_json(file, document(SCHEMA, versions=versions(), **facts))
