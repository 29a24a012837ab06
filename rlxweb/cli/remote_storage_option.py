"""Storage options on the command line: `--storage NAME=VALUE`, repeatable."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import click

from rlxweb.core.errors import UsageError, shown
from rlxweb.io.storage_options import StorageAccess

_FLAG = "--storage"
_JSON_VALUE_PATTERN = re.compile(r"true|false|null|-?\d+(\.\d+)?|[{\[].*", re.DOTALL)
# What stays text although it looks like a number.
_TEXT_NAME_PATTERN = re.compile(
    r"key|secret|token|password|user|account", re.IGNORECASE
)


def parse_access(assignments: Sequence[str]) -> StorageAccess:
    """Parse "name=value" options into an Access, as fsspec takes them.

    Dots in a name nest: "client_kwargs.endpoint_url=…". Numbers, true, false, null and
    JSON mean what they mean there, but for names, keys and passwords.

    Errors   UsageError for what has no "=", without its value, and for a name twice.
    """
    options: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        *path, last = name.strip().split(".")
        if not equals or not last or not all(path):
            if not equals:
                problem = "an fsspec option has no '='"
            elif not name.strip():
                problem = "an fsspec option has no name before '='"
            else:
                problem = (
                    f"the fsspec option name {shown(name)} has an empty part before or "
                    "after '.'"
                )
            rule = "expected NAME=VALUE"
            hint = f"write it like {_FLAG} anon=true"
            raise UsageError(_FLAG, problem, rule, hint)
        nested = options
        for step in path:
            nested = nested.setdefault(step, {})
            if not isinstance(nested, dict):
                raise UsageError(
                    _FLAG, f"{step!r} is given twice", "each name is allowed once"
                )
        if last in nested:
            raise UsageError(
                _FLAG, f"{name!r} is given twice", "each name is allowed once"
            )
        nested[last] = _parse_value(last, value)
    return StorageAccess(options)


def _parse_value(name: str, text: str) -> Any:
    if _TEXT_NAME_PATTERN.search(name) or not _JSON_VALUE_PATTERN.fullmatch(text):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parse_option(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> StorageAccess:
    return parse_access(value)


STORAGE_OPTION = click.option(
    _FLAG,
    "storage",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parse_option,
    help="fsspec option for URLs (anon=true, s3.endpoint_url=…); repeatable; the "
    "values are never printed.",
)
