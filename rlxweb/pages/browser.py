"""The browser that somebody works with, shown a page."""

from __future__ import annotations

import threading
import webbrowser


def show(url: str) -> None:
    """Open it there, if there is one; returns at once, whatever becomes of it."""
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
