"""Entry point inside Pyodide: run the suite on the tab's devices and post each
message.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rlxweb.core.errors import RlxError
from rlxweb.smoke.case_runner import run_engine_cases as answered
from rlxweb.smoke.result_rows import DEVICE_LOST_ERRORS


async def run_request(request: str, post: Callable[[str], object]) -> None:
    """Run the JSON request and post each message as it is made."""

    def send(**message: Any) -> None:
        post(json.dumps(message, allow_nan=False))

    try:
        await answered(json.loads(request), send)
    except RlxError as error:
        send(failed=str(error), is_lost=isinstance(error, DEVICE_LOST_ERRORS))
