"""Where in the user's code something was written that a graph cannot say.

Errors of tracing name that line, which is the first that is neither ours nor NumPy's.
"""

from __future__ import annotations

import sys
from types import FrameType

from rlxweb.errors import RlxError, TraceError

_NOT_THEIRS = ("rlxweb", "numpy", "functools", "contextlib")


def place() -> str:
    """`model.py:12 in step`; "" where there is none.

    A line of an installed package is taken where there is no other.
    """
    found = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in _NOT_THEIRS:
            code = frame.f_code
            said = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
            if "site-packages" not in code.co_filename:
                return said
            found = found or said
        frame = frame.f_back
    return found


def refused(what: str, problem: str, rule: str = "", hint: str = "") -> TraceError:
    """The error for what cannot be traced, with the place where it stands."""
    error = TraceError("", problem, rule, hint)
    placed(error, what)
    return error


def placed(error: RlxError, what: str) -> RlxError:
    """An error, told where in the user's code this was written; once."""
    if "placed" not in error.__dict__:
        error.__dict__["placed"] = where = place()
        said = f"{what} at {where}" if where else what
        error.doing = f"{said}: {error.doing}" if error.doing else said
    return error
