"""Whose line a warning is about: the first that is not ours."""

from __future__ import annotations

import sys


def outside() -> int:
    """What `warnings.warn` takes as stacklevel to name the line that called rlxweb.

    However many of our own functions lie between.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_globals.get("__name__", "").partition(".")[0] == "rlxweb":
        if frame.f_back is None:
            break
        frame, level = frame.f_back, level + 1
    return level
