"""Runs the programs of the manual's pages, and holds to them what the pages show.

    python site/snippets.py PAGE.md …          run, write down what is printed and drawn
    python site/snippets.py --check PAGE.md …  run, and say what differs

A page's Python blocks run in order in one namespace and an empty folder. What they
print stands on the page in three forms, and each must be what they do print:

    print(x)  # [10. 23.]     behind a print; "…" stands for anything
    <!-- printed -->          above a text block: all that the block before it prints,
                              which may be one of shell commands; only those are run
    <!-- make: shown F.svg    the picture F.svg, which a block saves; the page shows the
                              one in pictures/shown

A program of the folder `examples` that a page lists (`<!-- make: example F.py -->`) is
copied into the working folder, where a shell block runs it as `python F.py`.

A comment that begins with a small letter and has no "…" is not compared. Numbers may
differ by one in the last place that is shown: processors round in their own ways.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import difflib
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from picture_text import alike, differs

SITE = Path(__file__).resolve().parent
SHOWN = SITE / "pictures" / "shown"
EXAMPLES = SITE / "examples"
ROOT = SITE.parent
_BLOCK = re.compile(
    r"^(?P<mark><!--[^\n]*-->\n)?(?P<indent> *)```(?P<kind>python|sh)\b[^\n]*\n"
    r"(?P<code>.*?)^ *```\n(?:\n<!-- printed -->\n```text\n(?P<said>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_PICTURE = re.compile(r"^<!-- make: shown (\S+) ", re.MULTILINE)
_EXAMPLE = re.compile(r"^<!-- make: example (.+) -->$", re.MULTILINE)
_NAMED = re.compile(r"# (\w+\.py)\n")
_PLAIN = re.compile(r"rlxweb [^|<>&;$`*]*")
"""Commands that need no shell: they run in this process, which has all loaded."""
_PRINT = "_print_here"
_WIDE = 80
# Pictures of text as text, and the same bytes for the same picture.
_MATPLOTLIB = """\
backend: Agg
svg.fonttype: none
svg.hashsalt: rlxweb
"""


@dataclass(slots=True)
class Page:
    """One page; what is wrong with it, and what is not of today."""

    path: Path
    text: str
    faults: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    printed: dict[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        path = self.path.resolve()
        return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1


def run(page: Page) -> None:
    """All blocks of a page, in the working folder."""
    names: dict[str, Any] = {"__name__": "page"}
    for listed in _EXAMPLE.findall(page.text):
        for name in listed.split():
            shutil.copyfile(EXAMPLES / name, name)
    for found in _BLOCK.finditer(page.text):
        if (found["mark"] or "").startswith("<!-- not run"):
            continue
        code, is_shown = textwrap.dedent(found["code"]), found["said"] is not None
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            if found["kind"] == "python":
                _python(page, code, page.line(found.start("code")), names)
            elif is_shown:
                with contextlib.redirect_stderr(said):
                    _shell(code)
        if not is_shown:
            continue
        lines = [line.rstrip() for line in said.getvalue().splitlines()]
        now = "\n".join(lines).strip("\n") + "\n"
        page.printed[found.start("said")] = now
        if not alike(now, found["said"]):
            where = f"{page.name}:{page.line(found.start('said'))}"
            page.stale.append(f"{where} shows what is not printed\n{_diff(found, now)}")


def _diff(found: re.Match[str], now: str) -> str:
    lines = (text.splitlines() for text in (found["said"], now))
    return "\n".join(difflib.unified_diff(*lines, "the page", "the run", lineterm=""))


# --- Python -------------------------------------------------------------------------


def _python(page: Page, code: str, line: int, names: dict[str, Any]) -> None:
    """Run a block; what comments tell of prints must be so, at least once each."""
    if named := _NAMED.match(code):  # for those that import it
        Path(named[1]).write_text(code, "utf-8")
    where = f"{page.name}:{line}"
    told, said = _comments(code), dict[int, list[str]]()

    def print_here(at: int, *values: Any, **more: Any) -> None:
        text = io.StringIO()
        print(*values, **{**more, "file": text})
        print(text.getvalue(), end="", file=more.get("file"))
        said.setdefault(at, []).append(text.getvalue())

    prints = _Prints(set(told))
    tree = prints.visit(ast.parse(code, where))
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = ast.fix_missing_locations(tree)
    made = compile(tree, where, "exec", flags=flags, dont_inherit=True)
    names[_PRINT] = print_here
    waits = eval(made, names)
    if inspect.iscoroutine(waits):
        asyncio.run(waits)
    for at in sorted(prints.told):
        found = said.get(at, [])
        if not any(_says(one, told[at]) for one in found):
            fault = f"{page.name}:{line + at - 1} says {told[at]!r}\n"
            page.faults.append(f"{fault}it prints {found[:1] or 'nothing'}")


def _comments(code: str) -> dict[int, str]:
    """Line → the comment at its end that tells what is printed."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        words = token.string.removeprefix("#").strip()
        is_told = words and (not words[0].islower() or "…" in words)
        if token.type == tokenize.COMMENT and is_told:
            found[token.start[0]] = words
    return found


class _Prints(ast.NodeTransformer):
    """Has prints with a comment behind them tell their line."""

    def __init__(self, lines: set[int]) -> None:
        self.lines = lines
        self.told: set[int] = set()

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        call, at = node.value, node.end_lineno or 0
        is_print = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if is_print and call.func.id == "print" and at in self.lines:
            call.func.id = _PRINT
            call.args.insert(0, ast.Constant(at))
            self.told.add(at)
        return node


def _says(said: str, told: str) -> bool:
    """Is this what was printed? Behind a colon may stand what it means."""
    flat = " ".join(said.split())
    return any(alike(flat, one) for one in (told, told.rsplit(": ", 1)[0]))


# --- the command line ---------------------------------------------------------------


def _shell(code: str) -> None:
    """Run commands; those of ours without a process of their own, where it is the same.

    Errors   RuntimeError when one does not end well
    """
    for line in code.replace("\\\n", "").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = shlex.split(line, comments=True)
        if _PLAIN.fullmatch(line.split("  #")[0]):
            status = _in_process(words[1:])
        else:
            done = subprocess.run(
                line, shell=True, capture_output=True, text=True, check=False
            )
            print(done.stdout + done.stderr, end="")
            status = done.returncode
        if status:
            raise RuntimeError(f"exit code {status} of {line!r}")


def _in_process(words: Sequence[str]) -> int:
    from rlxweb.cli.main import main

    try:
        main(list(words))
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder to run in, with the commands `rlxweb` and `python` on the path.

    Matplotlib is set for pictures.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="rlxweb-page-") as folder:
        tools, work = Path(folder, "bin"), Path(folder, "work")
        tools.mkdir()
        work.mkdir()
        python = shlex.quote(sys.executable)
        for name, command in (("python", python), ("rlxweb", f"{python} -m rlxweb")):
            tool = tools / name
            tool.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
            tool.chmod(0o755)
        (tools / "matplotlibrc").write_text(_MATPLOTLIB, "utf-8")
        os.environ |= {
            "PATH": os.pathsep.join((str(tools), os.environ.get("PATH", ""))),
            "PYTHONPATH": os.pathsep.join(
                (str(ROOT), os.environ.get("PYTHONPATH", ""))
            ),
            "MATPLOTLIBRC": str(tools),
            "SOURCE_DATE_EPOCH": "0",
            "COLUMNS": str(_WIDE),
            "LINES": "24",
            "RLX_CALIBRATION": "off",
        }
        os.chdir(work)
        sys.path.insert(0, str(work))
        try:
            yield work
        finally:
            sys.path.remove(str(work))
            os.chdir(before)


# --- what a page shows --------------------------------------------------------------


def compare_pictures(page: Page, work: Path) -> None:
    """Note those on the page that the run did not draw, or drew otherwise."""
    for name in _PICTURE.findall(page.text):
        drawn, kept = work / name, SHOWN / name
        if not drawn.is_file():
            page.stale.append(f"{page.name} shows {name}, which no block saves")
        elif not kept.is_file():
            page.stale.append(f"{kept.name} is not there yet")
        elif why := differs(kept.read_text("utf-8"), drawn.read_text("utf-8")):
            page.stale.append(f"{page.name} shows {name}, which is drawn anew: {why}")


def write_down(page: Page, work: Path) -> None:
    """Put what was printed and drawn where the page shows it."""
    text = page.text
    for at, now in sorted(page.printed.items(), reverse=True):
        end = text.index("```", at)
        if not alike(now, text[at:end]):
            old = [line for line in text[at:end].splitlines() if "…" in line]
            text = text[:at] + _open(now, old) + text[end:]
    page.path.write_text(text, "utf-8")
    SHOWN.mkdir(exist_ok=True)
    for name in _PICTURE.findall(page.text):
        if (work / name).is_file():
            (SHOWN / name).write_text((work / name).read_text("utf-8"), "utf-8")


def _open(now: str, old: Sequence[str]) -> str:
    """What was printed, with lines that the page left open as open as they were."""
    lines = (
        next((kept for kept in old if alike(line, kept)), line)
        for line in now.splitlines()
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Exit code 1 when a page shows what a run does not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing")
    asked = parser.parse_args()
    paths = [path.resolve() for path in asked.pages]
    told = [fault for path in paths for fault in _faults(path, asked.check)]
    if told:
        print(*told, sep="\n\n", file=sys.stderr)
        again = "python site/snippets.py PAGE.md writes down what blocks print and draw"
        print(f"\n{again}", file=sys.stderr)
    return 1 if told else 0


def _faults(path: Path, check: bool) -> list[str]:
    page = Page(path, path.read_text("utf-8"))
    with workplace() as work, warnings.catch_warnings():
        run(page)
        if check:
            compare_pictures(page, work)
        else:
            write_down(page, work)
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
    return page.faults + page.stale * check


if __name__ == "__main__":
    sys.exit(main())
