"""Whoever shares a program or an engine takes turns.

Threads wait on a lock. The tasks of a browser tab share one thread and switch where
they await, so there they wait for a promise. Names no event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlxweb.forked import ForkLock
from rlxweb.gpu.drive import in_a_tab

if TYPE_CHECKING:
    from rlxweb.gpu.browser import Gate


class Turn:
    """`async with turn:` holds one at a time; a desktop's never suspends.

    The thread that holds it may take it again; a task of a tab may not.
    """

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._gate: Gate | None = None

    async def __aenter__(self) -> None:
        if not in_a_tab():
            self._lock.__enter__()
            return
        from rlxweb.gpu.browser import Gate

        while self._gate is not None:
            await self._gate.opened()
        self._gate = Gate()

    async def __aexit__(self, *_: object) -> None:
        gate, self._gate = self._gate, None
        if gate is None:
            self._lock.__exit__()
        else:
            gate.open()
