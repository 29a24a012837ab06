"""Commands in the manual must be valid for the present command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rlxweb.cli.main import cli
from tests.unit.site.built_manual import ROOT, SOURCE_PAGES

FENCE = re.compile(r"^ *```(?:sh|console|text)[^\n]*\n(.*?)^ *```$", re.M | re.S)
INLINE_CODE = re.compile(r"`(rlxweb [^`]+)`")
SHELL_OPERATORS = re.compile(r" [|>&;] ?| && | \|\| |  #| &$")


def iter_commands(text: str) -> Iterator[str]:
    """Iterate over each command of `rlxweb`, as a shell would pass it on."""
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", "").splitlines():
            for part in SHELL_OPERATORS.split(line):
                command = part.strip().removeprefix("$ ")
                if command.startswith("rlxweb "):
                    yield command
    for command in INLINE_CODE.findall(text):
        if "…" not in command and not re.search(r"[<=]|COMMAND| [A-Z]+$", command):
            yield command


def check_command(line: str) -> None:
    """Check that a line's command, options and choices exist.

    Errors   click.UsageError
    """
    context = click.Context(cli, info_name="rlxweb")
    command: click.Command | None = cli
    arguments = shlex.split(line, comments=True)[1:]
    while isinstance(command, click.Group) and arguments and arguments[0][0] != "-":
        name, *arguments = arguments
        command = command.get_command(context, name)
        if command is None:
            raise click.UsageError(f"no command {name}")
    assert command is not None
    context = click.Context(command, context)
    try:
        values, _, _ = command.make_parser(context).parse_args(list(arguments))
    except click.BadOptionUsage as error:
        if arguments[-1] != error.option_name:  # "the page of `rlxweb smoke --html`"
            raise
        values = {}
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice) and parameter.name in values:
            parameter.type_cast_value(context, values[parameter.name])


@pytest.mark.parametrize(
    "path", SOURCE_PAGES, ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_commands_of_a_page_are_valid(path: Path) -> None:
    """A page's commands have no outdated option and no value outside its choices."""
    for line in iter_commands(path.read_text("utf-8")):
        try:
            check_command(line)
        except click.UsageError as error:
            pytest.fail(f"{line}: {error.format_message()}", pytrace=False)


def test_invalid_commands_are_detected() -> None:
    """The check covers options, choices, commands, and what follows a pipe."""
    page = "```sh\ncat x | rlxweb live - --raw f32  # hear\nrlxweb welch a --k 5\n```"
    assert list(iter_commands(page)) == [
        "rlxweb live - --raw f32",
        "rlxweb welch a --k 5",
    ]
    for invalid in (
        "welch a --top 5",
        "welch a --mode best",
        "welsh a",
        "bench --what",
    ):
        with pytest.raises(click.UsageError):
            check_command(f"rlxweb {invalid}")
    check_command("rlxweb welch 'nights/*.edf' --mode peaks --start @22:15")
