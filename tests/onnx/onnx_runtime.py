"""Sessions of ONNX Runtime that compute the same on every processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime


def session_options() -> Any:
    """Return options with exact products of 8-bit integers.

    Without them processors that lack VNNI add pairs of products in 16 bits, which
    saturates.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def open_session(model: Path | bytes | str, options: Any = None) -> Any:
    """Open a model, of a file or of bytes, on the CPU."""
    return onnxruntime.InferenceSession(
        model, options or session_options(), providers=["CPUExecutionProvider"]
    )


def run_onnxruntime(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    """Return the outputs computed by ONNX Runtime."""
    results: list[Any] = open_session(data).run(None, feeds)
    return results
