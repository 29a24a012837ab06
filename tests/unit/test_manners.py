"""How tests behave: none waits for ever, and none waits for luck."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = {"run", "call", "check_call", "check_output"}
WAITS = {"communicate", "wait", "join"}
SLEEPS = {"sleep", "wait_for_timeout"}
MAY_WAIT = re.compile(
    rf"subprocess\s*\.\s*({'|'.join(RUNS)})\b"
    rf"|\.\s*({'|'.join(WAITS - {'join'} | SLEEPS)})\b"
    r"|\.\s*join\s*\(\s*\)"
)


@cache
def calls() -> list[tuple[str, ast.Call, str]]:
    """Calls in tests/ that may wait: where each stands, itself, what it is of.

    Of files where the text shows that something runs, waits or sleeps.
    """
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if MAY_WAIT.search(text) else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in RUNS | WAITS | SLEEPS
            ):
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                found.append((where, node, ast.unparse(node.func.value)))
    return found


def test_whoever_waits_for_a_process_or_a_thread_says_how_long() -> None:
    endless = []
    for where, call, owner in calls():
        assert isinstance(call.func, ast.Attribute)
        name, has_words = call.func.attr, bool(call.keywords)
        is_timed = any(word.arg == "timeout" for word in call.keywords)
        if owner == "subprocess" and name in RUNS and not is_timed:
            endless.append(where)
        is_process = owner != "trips"  # whose wait is a coroutine, driven to its end
        if (
            name in ("communicate", "wait")
            and is_process
            and not (call.args or is_timed)
        ):
            endless.append(where)
        if name == "join" and not call.args and not has_words:
            endless.append(where)
    assert endless == []


def test_nobody_sleeps_until_something_has_surely_happened() -> None:
    """Conditions are waited for; `asyncio.sleep(0)` lets others run and is no sleep."""
    asleep = [
        where
        for where, call, _ in calls()
        if call.func.attr in SLEEPS and ast.unparse(call) != "asyncio.sleep(0)"
    ]
    assert asleep == []
