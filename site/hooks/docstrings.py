"""Docstrings of the house template as Markdown, for mkdocstrings and the op pages.

The template is plain text that reads well in a terminal: paragraphs, and rows of
"name   what it is" whose right column is aligned; or numpydoc, with sections below a
ruled title. Markdown would run the rows together and take `*` and `_` for emphasis.
Knows no page and no op.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import griffe

_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"([\\*_>\[\]|#])")
# "name   text": two spaces or more between the columns.
_ROW = re.compile(r"(?P<name>\S+(?: \S+)*?) {2,}(?P<text>\S.*)")
# "→ the axes": what is given back, alone on its line.
_GIVES = "→ "
# "A record. Errors  GraphError when …": a row that follows a sentence.
_INLINE = re.compile(r"(?<=[.)]) (Errors {2,}\S)")


def prose(text: str) -> str:
    """Plain text as Markdown that shows every letter of it; `code` stays code."""
    parts = _CODE.split(text)
    return "".join(
        part if at % 2 else _SPECIAL.sub(r"\\\1", part).replace("<", "&lt;")
        for at, part in enumerate(parts)
    )


@dataclass(slots=True)
class _Row:
    """One row of a table, its continuation lines joined."""

    name: str
    text: list[str]

    def markdown(self) -> str:
        label = f"**{self.name}**" if self.name[:1].isupper() else f"`{self.name}`"
        return f"{label}\n:   {prose(' '.join(self.text))}"


@dataclass(slots=True)
class _Paragraph:
    """Lines of prose and rows, in the order they come."""

    parts: list[str | _Row] = field(default_factory=list)

    def add(self, line: str, column: int) -> None:
        last = self.parts[-1] if self.parts else ""
        row = _row_of(line, column)
        if row is not None:
            self.parts.append(row)
        elif isinstance(last, _Row):
            last.text.append(line.strip())
        elif self.parts:
            self.parts[-1] = f"{last} {line.strip()}"
        else:
            self.parts.append(line.strip())

    def markdown(self) -> str:
        return "\n\n".join(
            part.markdown() if isinstance(part, _Row) else prose(part)
            for part in self.parts
        )


def _row_of(line: str, column: int) -> _Row | None:
    """The line as the start of a row; a name as wide as its column has one space."""
    if line.startswith(" "):
        return None
    if line.startswith(_GIVES):
        return _Row("Returns", [line.removeprefix(_GIVES)])
    found = _ROW.fullmatch(line)
    if found is not None:
        return _Row(found["name"], [found["text"]])
    name, rest = line[: column - 1], line[column:]
    if column > 1 and rest and line[column - 1] == " " and name and " " not in name:
        return _Row(name, [rest])
    return None


def _column(lines: Sequence[str]) -> int:
    """Where the right column begins; 0 where there is none."""
    for line in lines:
        found = None if line.startswith(" ") else _ROW.fullmatch(line)
        if found is not None:
            return found.start("text")
    return 0


def as_markdown(text: str) -> str:
    """A docstring without its indentation, as Markdown.

    Rows and the entries of numpydoc's sections become definition lists, examples at
    the prompt become code.
    """
    text = _INLINE.sub(r"\n\n\1", text)
    return "\n\n".join(_block(block) for block in re.split(r"\n\s*\n", text.strip()))


def _block(block: str) -> str:
    lines = block.split("\n")
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if len(lines) > 1 and re.fullmatch(r" *-{3,}", lines[1]):
        return f"**{lines[0].strip()}**\n\n{_section(lines[2:])}".rstrip()
    made = _Paragraph()
    column = _column(lines)
    for line in lines:
        made.add(line, column)
    return made.markdown()


def _section(lines: Sequence[str]) -> str:
    """Return what stands below a title of numpydoc: entries, or prose or examples."""
    if not any(line.startswith(" ") for line in lines):
        return _block("\n".join(lines)) if lines else ""
    entries: list[_Row] = []
    for line in lines:
        if line.startswith(" ") and entries:
            entries[-1].text.append(line.strip())
        else:
            entries.append(_Row(line.strip(), []))
    return "\n\n".join(
        f"`{entry.name}`\n:   {prose(' '.join(entry.text))}" for entry in entries
    )


# --- for mkdocstrings ---------------------------------------------------------------


class HouseStyle(griffe.Extension):
    """Turns every docstring of a package into Markdown before it is rendered.

    Fields are described by their class, in its rows: those with no words of their own
    are taken out, so that they are not listed a second time.
    """

    def on_package(
        self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any
    ) -> None:
        for found in _objects(pkg):
            if found.docstring is not None:
                found.docstring.value = as_markdown(found.docstring.value)
            if isinstance(found, griffe.Class):
                for name in [n for n, m in found.members.items() if _is_bare(m)]:
                    del found.members[name]


def _is_bare(member: griffe.Object | griffe.Alias) -> bool:
    """A field without words; a property is called like one but is a function."""
    if not isinstance(member, griffe.Attribute) or "property" in member.labels:
        return False
    return member.docstring is None


def _objects(found: griffe.Object) -> Iterator[griffe.Object]:
    yield found
    for member in found.members.values():
        if isinstance(member, griffe.Object):
            yield from _objects(member)
