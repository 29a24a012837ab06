"""Errors of tracing that name the line of the user's code where they arose.

Errors of tracing name that line, which is the first that is neither ours nor NumPy's.
"""

from __future__ import annotations

import sys
from types import FrameType

from rlxweb.core.errors import RlxError, TraceError

_LIBRARY_PACKAGES = ("rlxweb", "numpy", "functools", "contextlib")


def user_location() -> str:
    """Return the innermost line of user code on the stack, as `model.py:12 in step`; ""
    if there is none.

    A line of an installed package is taken where there is no other.
    """
    fallback = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in _LIBRARY_PACKAGES:
            code = frame.f_code
            location = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
            if "site-packages" not in code.co_filename:
                return location
            fallback = fallback or location
        frame = frame.f_back
    return fallback


def trace_error(
    operation: str, problem: str, rule: str = "", hint: str = ""
) -> TraceError:
    """Return the error for an operation that cannot be traced, with the line of user
    code.
    """
    error = TraceError("", problem, rule, hint)
    add_user_location(error, operation)
    return error


def add_user_location(error: RlxError, operation: str) -> RlxError:
    """Add the operation and the line of user code to an error, once."""
    if "placed" not in error.__dict__:
        error.__dict__["placed"] = location = user_location()
        context = f"{operation} at {location}" if location else operation
        error.doing = f"{context}: {error.doing}" if error.doing else context
    return error
