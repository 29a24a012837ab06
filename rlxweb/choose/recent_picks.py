"""Picks of jobs that come again and again, kept for some uses.

What makes a pick the same is the caller's key. Knows no job and no way.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlxweb.calibration.worth import worth
from rlxweb.forked import ForkLock, watch

if TYPE_CHECKING:
    from rlxweb.choose.chooser import Pick


@dataclass(slots=True, eq=False)
class _Recent:
    """A pick, and how often it may still be used."""

    pick: Pick[Any]
    uses: int


@dataclass(slots=True, weakref_slot=True, eq=False)
class RecentPicks:
    """Picks of jobs that come again and again, so that small ones stay quick.

    Each is used `uses` times and then made anew, with what runs have taught meanwhile,
    so the oldest go first: whatever is in use is young. A forked child makes its own:
    not every engine comes along.
    """

    uses: int = 256
    capacity: int = 256
    _left: dict[Hashable, _Recent] = field(default_factory=dict)
    _lock: ForkLock = field(default_factory=ForkLock)

    def __post_init__(self) -> None:
        watch(self, RecentPicks._in_child)

    def _in_child(self) -> None:
        self._left.clear()

    def get(self, key: Hashable) -> Pick[Any] | None:
        """The pick, if it was made lately."""
        # Without the lock: two threads at once may use it once more than was said.
        found = self._left.get(key)
        if found is None or found.uses < 1:
            return None
        found.uses -= 1
        pick = found.pick
        if pick.cpu_ns:  # 0 where a place was named
            worth.add(pick.cpu_ns)
        return pick

    def keep(self, key: Hashable, pick: Pick[Any]) -> None:
        with self._lock:
            self._left.pop(key, None)  # the newest is the last
            self._left[key] = _Recent(pick, self.uses)
            while len(self._left) > self.capacity:
                del self._left[next(iter(self._left))]

    def forget(self) -> None:
        """Decide anew from here on."""
        with self._lock:
            self._left.clear()


recent = RecentPicks()
