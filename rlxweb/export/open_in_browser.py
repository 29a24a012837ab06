"""Opening of pages in the user's web browser."""

from __future__ import annotations

import threading
import webbrowser


def open_in_browser(url: str) -> None:
    """Open a URL in the default browser, if there is one; returns at once without
    waiting for it.
    """
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
