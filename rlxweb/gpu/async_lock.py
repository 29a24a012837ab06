"""Lock for threads, and for the tasks of a browser tab, that share a program or an
engine.

Threads wait on a lock. The tasks of a browser tab share one thread and switch where
they await, so there they wait for a promise. Names no event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlxweb.core.fork_safety import ForkSafeLock
from rlxweb.gpu.coroutine_runner import is_browser

if TYPE_CHECKING:
    from rlxweb.gpu.browser_port import PromiseGate


class AsyncLock:
    """Lock for `async with`; outside a browser it never suspends.

    The thread that holds it may take it again; a task of a tab may not.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._gate: PromiseGate | None = None

    async def __aenter__(self) -> None:
        if not is_browser():
            self._lock.__enter__()
            return
        from rlxweb.gpu.browser_port import PromiseGate

        while self._gate is not None:
            await self._gate.wait_until_open()
        self._gate = PromiseGate()

    async def __aexit__(self, *_: object) -> None:
        gate, self._gate = self._gate, None
        if gate is None:
            self._lock.__exit__()
        else:
            gate.open()
