"""What runs in the tab: the suite on the tab's WebGPU, awaited, line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rlxweb.errors import RlxError
from rlxweb.smoke.answering import answer as answered
from rlxweb.smoke.answers import LOST


async def answer(asked: str, said: Callable[[str], object]) -> None:
    """Do what the line asks for; each answer is handed over when it is there."""

    def say(**told: Any) -> None:
        said(json.dumps(told, allow_nan=False))

    try:
        await answered(json.loads(asked), say)
    except RlxError as error:
        say(failed=str(error), is_lost=isinstance(error, LOST))
