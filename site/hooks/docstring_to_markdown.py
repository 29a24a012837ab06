"""Convert the project's docstrings to Markdown, for mkdocstrings and the op pages.

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
_RETURNS_MARK = "→ "
# "A record. Errors  GraphError when …": a row that follows a sentence.
_INLINE_ERRORS = re.compile(r"(?<=[.)]) (Errors {2,}\S)")


def escape_markdown(text: str) -> str:
    """Escape plain text for Markdown, so that every character shows; `code` stays
    code.
    """
    parts = _CODE.split(text)
    return "".join(
        part if index % 2 else _SPECIAL.sub(r"\\\1", part).replace("<", "&lt;")
        for index, part in enumerate(parts)
    )


@dataclass(slots=True)
class _DocstringRow:
    """One row of a table, its continuation lines joined."""

    name: str
    text: list[str]

    def markdown(self) -> str:
        label = f"**{self.name}**" if self.name[:1].isupper() else f"`{self.name}`"
        return f"{label}\n:   {escape_markdown(' '.join(self.text))}"


@dataclass(slots=True)
class _DocstringParagraph:
    """Lines of prose and rows, in the order they come."""

    parts: list[str | _DocstringRow] = field(default_factory=list)

    def add(self, line: str, column: int) -> None:
        last = self.parts[-1] if self.parts else ""
        row = _parse_row(line, column)
        if row is not None:
            self.parts.append(row)
        elif isinstance(last, _DocstringRow):
            last.text.append(line.strip())
        elif self.parts:
            self.parts[-1] = f"{last} {line.strip()}"
        else:
            self.parts.append(line.strip())

    def markdown(self) -> str:
        return "\n\n".join(
            part.markdown()
            if isinstance(part, _DocstringRow)
            else escape_markdown(part)
            for part in self.parts
        )


def _parse_row(line: str, column: int) -> _DocstringRow | None:
    """Parse the line as the start of a row, or return None; a name as wide as its
    column is followed by one space.
    """
    if line.startswith(" "):
        return None
    if line.startswith(_RETURNS_MARK):
        return _DocstringRow("Returns", [line.removeprefix(_RETURNS_MARK)])
    match = _ROW.fullmatch(line)
    if match is not None:
        return _DocstringRow(match["name"], [match["text"]])
    name, rest = line[: column - 1], line[column:]
    if column > 1 and rest and line[column - 1] == " " and name and " " not in name:
        return _DocstringRow(name, [rest])
    return None


def _text_column(lines: Sequence[str]) -> int:
    """Return the offset of the right column, or 0 if there is none."""
    for line in lines:
        match = None if line.startswith(" ") else _ROW.fullmatch(line)
        if match is not None:
            return match.start("text")
    return 0


def as_markdown(text: str) -> str:
    """Convert a docstring without indentation to Markdown.

    Rows and the entries of numpydoc's sections become definition lists, examples at
    the prompt become code.
    """
    text = _INLINE_ERRORS.sub(r"\n\n\1", text)
    return "\n\n".join(
        _block_markdown(block) for block in re.split(r"\n\s*\n", text.strip())
    )


def _block_markdown(block: str) -> str:
    lines = block.split("\n")
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if len(lines) > 1 and re.fullmatch(r" *-{3,}", lines[1]):
        return f"**{lines[0].strip()}**\n\n{_section_markdown(lines[2:])}".rstrip()
    paragraph = _DocstringParagraph()
    column = _text_column(lines)
    for line in lines:
        paragraph.add(line, column)
    return paragraph.markdown()


def _section_markdown(lines: Sequence[str]) -> str:
    """Convert the text below a numpydoc title: entries, or prose or examples."""
    if not any(line.startswith(" ") for line in lines):
        return _block_markdown("\n".join(lines)) if lines else ""
    entries: list[_DocstringRow] = []
    for line in lines:
        if line.startswith(" ") and entries:
            entries[-1].text.append(line.strip())
        else:
            entries.append(_DocstringRow(line.strip(), []))
    return "\n\n".join(
        f"`{entry.name}`\n:   {escape_markdown(' '.join(entry.text))}"
        for entry in entries
    )


# --- for mkdocstrings ---------------------------------------------------------------


class MarkdownDocstrings(griffe.Extension):
    """Griffe extension that converts every docstring of a package to Markdown before it
    is rendered.

    Fields are described by their class, in its rows: those with no words of their own
    are taken out, so that they are not listed a second time.
    """

    def on_package(
        self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any
    ) -> None:
        for obj in _walk_objects(pkg):
            if obj.docstring is not None:
                obj.docstring.value = as_markdown(obj.docstring.value)
            if isinstance(obj, griffe.Class):
                for name in [
                    n for n, m in obj.members.items() if _is_undocumented_field(m)
                ]:
                    del obj.members[name]


def _is_undocumented_field(member: griffe.Object | griffe.Alias) -> bool:
    """Tell whether a member is a field without a docstring; properties count as
    functions.
    """
    if not isinstance(member, griffe.Attribute) or "property" in member.labels:
        return False
    return member.docstring is None


def _walk_objects(obj: griffe.Object) -> Iterator[griffe.Object]:
    yield obj
    for member in obj.members.values():
        if isinstance(member, griffe.Object):
            yield from _walk_objects(member)
