"""Listings of the programs in `site/examples` for the pages of the cookbook."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def listing(arguments: str) -> str:
    """Return code blocks of a program and, folded, of the modules that it imports."""
    program, *modules = arguments.split()
    folded = (
        f'??? note "{name}, which it imports"\n\n{indent(_code_block(name), "    ")}'
        for name in modules
    )
    return "\n\n".join([_code_block(program), *folded])


def _code_block(name: str) -> str:
    code = (EXAMPLES / name).read_text(encoding="utf-8")
    return f'```python title="{name}"\n{code}```'
