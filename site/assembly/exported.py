"""The export that a demo shows, made by the rlxweb of this checkout."""

from __future__ import annotations

from pathlib import Path

import rlxweb

JOB = {"rows": 32, "samples": 2048, "fs": 256.0, "nperseg": 256, "k": 5}
"""What site/demo/export/export.js asks of both of its sides."""


def add_export(folder: Path) -> None:
    """Write it to `folder`, beside the demo's own page. Errors  RlxError."""
    rlxweb.export_welch(folder, **JOB)  # type: ignore[arg-type]  # whole or not
