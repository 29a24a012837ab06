"""The command line as one page, read from the click commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click
from docstring_to_markdown import as_markdown, escape_markdown

from rlxweb.cli.main import cli


def commands() -> str:
    """Return the Markdown of every command: usage, description, options."""
    context = click.Context(cli, info_name="rlxweb", **cli.context_settings)
    return "\n\n".join(
        section
        for name in cli.list_commands(context)
        for section in _command_sections(cli, name, context)
    )


def _command_sections(
    group: click.Group, name: str, parent: click.Context, level: str = "##"
) -> Iterator[str]:
    command = group.get_command(parent, name)
    if command is None or command.hidden:
        return
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{level} {context.command_path}"
    yield f"```sh\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    yield as_markdown((command.help or "").replace("\b\n", ""))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _command_sections(command, inner, context, level + "#")
    else:
        lines = ["| option | what it does |", "|---|---|"]
        yield "\n".join([*lines, *_option_rows(command, context)])


def _option_rows(command: click.Command, context: click.Context) -> Iterator[str]:
    """Table row of each option; `--help` is left out, since every command has it."""
    for parameter in command.params:
        help_record = parameter.get_help_record(context)
        if help_record is not None and isinstance(parameter, click.Option):
            yield f"| `{help_record[0]}` | {escape_markdown(help_record[1])} |"
