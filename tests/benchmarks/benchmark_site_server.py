"""Server of the built site, with the benchmark's pages under /_bench/, on a port of its
own.
"""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent / "tab"
START_MS = 90_000
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-unsafe-webgpu",
)
ISOLATION_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}
"""Headers that isolate a page: threads share memory, and clocks are finer."""


def chromium_path() -> str:
    """Return the path of the Chromium executable."""
    return shutil.which("chromium") or "chromium"


@contextmanager
def serve_site(
    site: Path, folders: Mapping[str, Path], headers: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Serve the site and yield its address.

    folders  what lies in /_bench/NAME/ beside the benchmark's pages
    headers  sent with what lies below /_bench/
    """
    folders_by_prefix = [
        (f"/_bench/{name}/", folder) for name, folder in folders.items()
    ]
    folders_by_prefix.append(("/_bench/", PAGES))

    class Served(http.server.SimpleHTTPRequestHandler):
        extensions_map = {  # noqa: RUF012  the base class has it so
            **http.server.SimpleHTTPRequestHandler.extensions_map,
            ".mjs": "text/javascript",
            ".js": "text/javascript",
            ".wasm": "application/wasm",
        }

        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(site))

        def log_message(self, *args: Any) -> None:
            """Log nothing."""

        def end_headers(self) -> None:
            if self.path.startswith("/_bench/"):
                for header in (headers or {}).items():
                    self.send_header(*header)
            super().end_headers()

        def translate_path(self, path: str) -> str:
            url_path = path.split("?")[0]
            for prefix, folder in folders_by_prefix:
                if url_path.startswith(prefix):
                    return str(folder / (url_path.removeprefix(prefix) or "index.html"))
            return super().translate_path(path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
