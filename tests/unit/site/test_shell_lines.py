"""The commands that the manual tells to type are commands of today."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rlxweb.cli.main import cli
from tests.unit.site.manual import ROOT, WRITTEN

FENCE = re.compile(r"^ *```(?:sh|console|text)[^\n]*\n(.*?)^ *```$", re.M | re.S)
SPAN = re.compile(r"`(rlxweb [^`]+)`")
SHELL = re.compile(r" [|>&;] ?| && | \|\| |  #| &$")


def commands(text: str) -> Iterator[str]:
    """Iterate over each command of `rlxweb`, as a shell would hand it over."""
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", "").splitlines():
            for part in SHELL.split(line):
                words = part.strip().removeprefix("$ ")
                if words.startswith("rlxweb "):
                    yield words
    for words in SPAN.findall(text):
        if "…" not in words and not re.search(r"[<=]|COMMAND| [A-Z]+$", words):
            yield words


def parsed(words: str) -> None:
    """Check that a line's command, options and choices exist.

    Errors   click.UsageError
    """
    context = click.Context(cli, info_name="rlxweb")
    command: click.Command | None = cli
    given = shlex.split(words, comments=True)[1:]
    while isinstance(command, click.Group) and given and given[0][0] != "-":
        name, *given = given
        command = command.get_command(context, name)
        if command is None:
            raise click.UsageError(f"no command {name}")
    assert command is not None
    context = click.Context(command, context)
    try:
        values, _, _ = command.make_parser(context).parse_args(list(given))
    except click.BadOptionUsage as error:
        if given[-1] != error.option_name:  # "the page of `rlxweb smoke --html`"
            raise
        values = {}
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice) and parameter.name in values:
            parameter.type_cast_value(context, values[parameter.name])


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_of_a_page_can_be_typed(path: Path) -> None:
    """A page's commands have no renamed option and no word outside its choices."""
    for words in commands(path.read_text("utf-8")):
        try:
            parsed(words)
        except click.UsageError as error:
            pytest.fail(f"{words}: {error.format_message()}", pytrace=False)


def test_a_command_that_is_not_there_is_found() -> None:
    """The check sees options, choices, commands, and what stands behind a pipe."""
    page = "```sh\ncat x | rlxweb live - --raw f32  # hear\nrlxweb welch a --k 5\n```"
    assert list(commands(page)) == ["rlxweb live - --raw f32", "rlxweb welch a --k 5"]
    for wrong in ("welch a --top 5", "welch a --mode best", "welsh a", "bench --what"):
        with pytest.raises(click.UsageError):
            parsed(f"rlxweb {wrong}")
    parsed("rlxweb welch 'nights/*.edf' --mode peaks --start @22:15")
