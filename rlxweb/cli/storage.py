"""Storage options as a command line has them: `--storage NAME=VALUE`, repeatable."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import click

from rlxweb.errors import UsageError, shown
from rlxweb.io.access import Access

_FLAG = "--storage"
_WORDS = re.compile(r"true|false|null|-?\d+(\.\d+)?|[{\[].*", re.DOTALL)
# What stays text although it looks like a number.
_TEXTS = re.compile(r"key|secret|token|password|user|account", re.IGNORECASE)


def access_of(texts: Sequence[str]) -> Access:
    """The options in "name=value", as fsspec takes them.

    Dots in a name nest: "client_kwargs.endpoint_url=…". Numbers, true, false, null and
    JSON mean what they mean there, but for names, keys and passwords.

    Errors   UsageError for what has no "=", without its value, and for a name twice.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        *path, last = name.strip().split(".")
        if not equals or not last or not all(path):
            told = f"{shown(name)} has" if equals and name else "one has"
            rule = "an option is written NAME=VALUE"
            raise UsageError(_FLAG, f"{told} no name or no value", rule, "anon=true")
        inner = options
        for step in path:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                raise UsageError(_FLAG, f"{step!r} is given twice", "once is enough")
        if last in inner:
            raise UsageError(_FLAG, f"{name!r} is given twice", "once is enough")
        inner[last] = _value(last, value)
    return Access(options)


def _value(name: str, text: str) -> Any:
    if _TEXTS.search(name) or not _WORDS.fullmatch(text):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parsed(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> Access:
    return access_of(value)


STORAGE = click.option(
    _FLAG,
    "storage",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parsed,
    help="How URLs are reached, as fsspec takes it (anon=true, s3.endpoint_url=…); "
    "repeatable, never shown.",
)
