"""Run the programs of the manual's pages, and compare what they print and draw with the
pages.

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

from output_comparison import outputs_match, picture_difference

SITE = Path(__file__).resolve().parent
SHOWN_PICTURES = SITE / "pictures" / "shown"
EXAMPLES = SITE / "examples"
ROOT = SITE.parent
_BLOCK = re.compile(
    r"^(?P<mark><!--[^\n]*-->\n)?(?P<indent> *)```(?P<kind>python|sh)\b[^\n]*\n"
    r"(?P<code>.*?)^ *```\n(?:\n<!-- printed -->\n```text\n(?P<said>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_PICTURE = re.compile(r"^<!-- make: shown (\S+) ", re.MULTILINE)
_EXAMPLE = re.compile(r"^<!-- make: example (.+) -->$", re.MULTILINE)
_FILE_COMMENT = re.compile(r"# (\w+\.py)\n")
_PLAIN_COMMAND = re.compile(r"rlxweb [^|<>&;$`*]*")
"""Commands that need no shell: they run in this process, which has everything loaded.
"""
_PRINT_NAME = "_print_here"
_TERMINAL_WIDTH = 80
# Pictures of text as text, and the same bytes for the same picture.
_MATPLOTLIBRC = """\
backend: Agg
svg.fonttype: none
svg.hashsalt: rlxweb
"""


@dataclass(slots=True)
class ManualPage:
    """Page of the manual, with the faults found in it and its outdated outputs."""

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


def run_page(page: ManualPage) -> None:
    """Run all blocks of a page, in the working folder."""
    names: dict[str, Any] = {"__name__": "page"}
    for names_text in _EXAMPLE.findall(page.text):
        for name in names_text.split():
            shutil.copyfile(EXAMPLES / name, name)
    for block in _BLOCK.finditer(page.text):
        if (block["mark"] or "").startswith("<!-- not run"):
            continue
        code, is_shown = textwrap.dedent(block["code"]), block["said"] is not None
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            if block["kind"] == "python":
                _run_python(page, code, page.line(block.start("code")), names)
            elif is_shown:
                with contextlib.redirect_stderr(output):
                    _run_shell(code)
        if not is_shown:
            continue
        lines = [line.rstrip() for line in output.getvalue().splitlines()]
        printed = "\n".join(lines).strip("\n") + "\n"
        page.printed[block.start("said")] = printed
        if not outputs_match(printed, block["said"]):
            location = f"{page.name}:{page.line(block.start('said'))}"
            page.stale.append(
                f"{location} shows output that the code does not print\n"
                f"{_output_diff(block, printed)}"
            )


def _output_diff(block: re.Match[str], printed: str) -> str:
    lines = (text.splitlines() for text in (block["said"], printed))
    return "\n".join(difflib.unified_diff(*lines, "the page", "the run", lineterm=""))


# --- Python -------------------------------------------------------------------------


def _run_python(page: ManualPage, code: str, line: int, names: dict[str, Any]) -> None:
    """Run a block; each comment that states a print must be true at least once."""
    if file_comment := _FILE_COMMENT.match(code):  # for those that import it
        Path(file_comment[1]).write_text(code, "utf-8")
    location = f"{page.name}:{line}"
    comments, printed = _print_comments(code), dict[int, list[str]]()

    def print_here(at: int, *values: Any, **options: Any) -> None:
        text = io.StringIO()
        print(*values, **{**options, "file": text})
        print(text.getvalue(), end="", file=options.get("file"))
        printed.setdefault(at, []).append(text.getvalue())

    recorder = _PrintRecorder(set(comments))
    tree = recorder.visit(ast.parse(code, location))
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = ast.fix_missing_locations(tree)
    code_object = compile(tree, location, "exec", flags=flags, dont_inherit=True)
    names[_PRINT_NAME] = print_here
    result = eval(code_object, names)
    if inspect.iscoroutine(result):
        asyncio.run(result)
    for at in sorted(recorder.recorded_lines):
        outputs = printed.get(at, [])
        if not any(_comment_matches(output, comments[at]) for output in outputs):
            fault = f"{page.name}:{line + at - 1} says {comments[at]!r}\n"
            page.faults.append(f"{fault}it prints {outputs[:1] or 'nothing'}")


def _print_comments(code: str) -> dict[int, str]:
    """Return a map from a line to the comment at its end that states what is
    printed.
    """
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        words = token.string.removeprefix("#").strip()
        is_expected = words and (not words[0].islower() or "…" in words)
        if token.type == tokenize.COMMENT and is_expected:
            comments[token.start[0]] = words
    return comments


class _PrintRecorder(ast.NodeTransformer):
    """Replace prints that have a comment behind them with calls that record the
    line.
    """

    def __init__(self, lines: set[int]) -> None:
        self.lines = lines
        self.recorded_lines: set[int] = set()

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        call, at = node.value, node.end_lineno or 0
        is_print = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if is_print and call.func.id == "print" and at in self.lines:
            call.func.id = _PRINT_NAME
            call.args.insert(0, ast.Constant(at))
            self.recorded_lines.add(at)
        return node


def _comment_matches(printed: str, comment: str) -> bool:
    """Tell whether the comment states what was printed; a meaning may follow a
    colon.
    """
    one_line = " ".join(printed.split())
    return any(
        outputs_match(one_line, expected)
        for expected in (comment, comment.rsplit(": ", 1)[0])
    )


# --- the command line ---------------------------------------------------------------


def _run_shell(code: str) -> None:
    """Run commands, those of rlxweb without a process of their own where that is
    equivalent.

    Errors   RuntimeError when one does not end well
    """
    for line in code.replace("\\\n", "").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        words = shlex.split(line, comments=True)
        if _PLAIN_COMMAND.fullmatch(line.split("  #")[0]):
            status = _run_in_process(words[1:])
        else:
            completed = subprocess.run(
                line, shell=True, capture_output=True, text=True, check=False
            )
            print(completed.stdout + completed.stderr, end="")
            status = completed.returncode
        if status:
            raise RuntimeError(f"exit code {status} of {line!r}")


def _run_in_process(words: Sequence[str]) -> int:
    from rlxweb.cli.main import main

    try:
        main(list(words))
    except SystemExit as exit_request:
        return int(exit_request.code or 0)
    return 0


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """Make a folder to run in, with the commands `rlxweb` and `python` on the path.

    Matplotlib is set for pictures.
    """
    previous_folder = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="rlxweb-page-") as folder:
        tools, work = Path(folder, "bin"), Path(folder, "work")
        tools.mkdir()
        work.mkdir()
        python = shlex.quote(sys.executable)
        for name, command in (("python", python), ("rlxweb", f"{python} -m rlxweb")):
            tool = tools / name
            tool.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
            tool.chmod(0o755)
        (tools / "matplotlibrc").write_text(_MATPLOTLIBRC, "utf-8")
        os.environ |= {
            "PATH": os.pathsep.join((str(tools), os.environ.get("PATH", ""))),
            "PYTHONPATH": os.pathsep.join(
                (str(ROOT), os.environ.get("PYTHONPATH", ""))
            ),
            "MATPLOTLIBRC": str(tools),
            "SOURCE_DATE_EPOCH": "0",
            "COLUMNS": str(_TERMINAL_WIDTH),
            "LINES": "24",
            "RLX_CALIBRATION": "off",
        }
        os.chdir(work)
        sys.path.insert(0, str(work))
        try:
            yield work
        finally:
            sys.path.remove(str(work))
            os.chdir(previous_folder)


# --- what a page shows --------------------------------------------------------------


def compare_pictures(page: ManualPage, work: Path) -> None:
    """Note the pictures on the page that the run did not draw, or drew differently."""
    for name in _PICTURE.findall(page.text):
        drawn, shown = work / name, SHOWN_PICTURES / name
        if not drawn.is_file():
            page.stale.append(
                f"{page.name} shows the picture {name}, which no code block saves"
            )
        elif not shown.is_file():
            page.stale.append(f"the picture {shown.name} does not exist yet")
        elif difference := picture_difference(
            shown.read_text("utf-8"), drawn.read_text("utf-8")
        ):
            page.stale.append(
                f"{page.name} shows an outdated picture {name}: {difference}"
            )


def update_page(page: ManualPage, work: Path) -> None:
    """Put the printed texts and the drawn pictures where the page shows them."""
    text = page.text
    for at, printed in sorted(page.printed.items(), reverse=True):
        end = text.index("```", at)
        if not outputs_match(printed, text[at:end]):
            elided_lines = [line for line in text[at:end].splitlines() if "…" in line]
            text = text[:at] + _keep_ellipses(printed, elided_lines) + text[end:]
    page.path.write_text(text, "utf-8")
    SHOWN_PICTURES.mkdir(exist_ok=True)
    for name in _PICTURE.findall(page.text):
        if (work / name).is_file():
            (SHOWN_PICTURES / name).write_text(
                (work / name).read_text("utf-8"), "utf-8"
            )


def _keep_ellipses(printed: str, elided_lines: Sequence[str]) -> str:
    """Return the printed text, with the page's own lines where those contain "…" and
    match.
    """
    lines = (
        next((elided for elided in elided_lines if outputs_match(line, elided)), line)
        for line in printed.splitlines()
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the pages given on the command line; exit code 1 if a page differs from its
    run.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument(
        "--check", action="store_true", help="only check, write nothing"
    )
    options = parser.parse_args()
    paths = [path.resolve() for path in options.pages]
    faults = [
        fault for path in paths for fault in _run_and_compare(path, options.check)
    ]
    if faults:
        print(*faults, sep="\n\n", file=sys.stderr)
        hint = (
            "run python site/snippets.py PAGE.md to update printed texts and pictures"
        )
        print(f"\n{hint}", file=sys.stderr)
    return 1 if faults else 0


def _run_and_compare(path: Path, check: bool) -> list[str]:
    page = ManualPage(path, path.read_text("utf-8"))
    with working_folder() as work, warnings.catch_warnings():
        run_page(page)
        if check:
            compare_pictures(page, work)
        else:
            update_page(page, work)
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
    return page.faults + page.stale * check


if __name__ == "__main__":
    sys.exit(main())
