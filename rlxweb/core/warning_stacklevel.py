"""Stack level of the first caller outside rlxweb, for warnings."""

from __future__ import annotations

import sys


def caller_stacklevel() -> int:
    """Return the stacklevel with which `warnings.warn` names the line that called
    rlxweb.

    However many of our own functions lie between.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_globals.get("__name__", "").partition(".")[0] == "rlxweb":
        if frame.f_back is None:
            break
        frame, level = frame.f_back, level + 1
    return level
