"""The process in which one engine is tried; `process.py` starts it.

Takes one line of JSON, and answers with lines: what was opened, the names of the cases,
each case before it is begun and its row after, and the end. Whatever happens to this
process, the parent knows what it was about. It ends when its parent does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlxweb.errors import RlxError
from rlxweb.gpu.drive import drive
from rlxweb.gpu.libraries import Library, adapters, shader_compiler
from rlxweb.library_probe import trust_libraries
from rlxweb.smoke.icds import fault_of

# What tries an engine is loaded where one is tried: to list adapters takes none of it.
if TYPE_CHECKING:
    from rlxweb.smoke.answering import Say

Write = Callable[[str], object]


def main() -> None:
    """Do what the line on the input asks for."""
    serve(_smoke)


def serve(work: Callable[[dict[str, Any], Say, Write], None]) -> None:
    """Read the line on the input, do the work it asks for, and end the process.

    work   gets what is asked, what tells an answer, and what writes past all form
    """
    trust_libraries()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a driver prints must not get between the answers

    def say(**told: Any) -> None:
        answers.write(json.dumps(told, allow_nan=False) + "\n")
        answers.flush()

    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_until_the_parent_ends, daemon=True).start()
    try:
        work(asked, say, answers.write)
    except RlxError as error:
        from rlxweb.smoke.answers import LOST

        say(failed=str(error), is_lost=isinstance(error, LOST))
    except ConnectionError as error:  # a tab that is gone: told as any process's end
        sys.exit(str(error))
    say(end=True)
    # Freeing what hangs would block; what is open here was closed, or is lost.
    os._exit(0)


def _until_the_parent_ends() -> None:
    sys.stdin.read()
    os._exit(1)


def _smoke(asked: dict[str, Any], say: Say, write: Write) -> None:
    if "engine" in asked:
        _try(asked, say, write)
    else:
        _list(say, asked["library"], asked["icds"])


def _list(say: Say, library: Library, icds: Sequence[str]) -> None:
    """Every adapter that the library finds, and the drivers that are passed over."""
    compiler = ""
    for facts in adapters(library):
        compiler = compiler or shader_compiler(library)
        say(
            adapter=facts.name,
            backend=facts.backend,
            vendor=facts.vendor,
            driver=facts.driver,
            software=facts.software,
            compiler=compiler,
        )
    for icd in icds:
        fault = fault_of(icd)
        if fault:
            say(icd=icd, fault=fault)


def _try(asked: dict[str, Any], say: Say, write: Write) -> None:
    from rlxweb.smoke.answering import answer
    from rlxweb.smoke.tab.here import in_a_tab
    from rlxweb.smoke.tab.node import WASM, under_node

    if asked["engine"]["kind"] == "browser":
        in_a_tab(asked, say)
    elif asked["engine"]["kind"] == WASM:
        under_node(asked, say)
    else:
        drive(answer(asked, say, write))
