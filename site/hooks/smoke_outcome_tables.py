"""Tables of the words and exit codes of a smoke test, from the tables that the command
uses.
"""

from __future__ import annotations

from rlxweb.smoke.report import ENGINE_WORDS, EXIT_CODES


def words(which: str) -> str:
    """Return the table of `engine` words or of `exit` codes."""
    if which == "exit":
        codes = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
        return "\n".join(["| exit code | meaning |", "|---:|---|", *codes])
    rows = [f"| {word} | {meaning} |" for word, meaning in ENGINE_WORDS.items()]
    return "\n".join(["| an engine is | where |", "|---|---|", *rows])
