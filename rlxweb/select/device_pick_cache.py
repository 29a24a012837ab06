"""Cache of the picks of recurring jobs; each entry serves a limited number of uses.

What makes a pick the same is the caller's key. Knows no job and no way.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlxweb.core.fork_safety import ForkSafeLock, register_child_callback
from rlxweb.select.calibration.profitability import profitability_policy

if TYPE_CHECKING:
    from rlxweb.select.chooser import DevicePick


@dataclass(slots=True, eq=False)
class _CachedPick:
    """Cached pick and the number of times it may still be used."""

    pick: DevicePick[Any]
    uses: int


@dataclass(slots=True, weakref_slot=True, eq=False)
class PickCache:
    """Cache of picks for recurring jobs, which keeps the choice cheap for small ones.

    Each is used `uses` times and then made anew, with what runs have taught meanwhile,
    so the oldest go first: whatever is in use is young. A forked child makes its own:
    not every engine comes along.
    """

    uses: int = 256
    capacity: int = 256
    _entries: dict[Hashable, _CachedPick] = field(default_factory=dict)
    _lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    def __post_init__(self) -> None:
        register_child_callback(self, PickCache._clear_in_child)

    def _clear_in_child(self) -> None:
        """Remove all cached picks in a forked child, which cannot use every engine of
        its parent.
        """
        self._entries.clear()

    def get(self, key: Hashable) -> DevicePick[Any] | None:
        """Return the cached pick of a key; None if there is none or its uses are
        spent.
        """
        # Without the lock: two threads at once may use it once more than was said.
        entry = self._entries.get(key)
        if entry is None or entry.uses < 1:
            return None
        entry.uses -= 1
        pick = entry.pick
        if pick.cpu_ns:  # 0 where a place was named
            profitability_policy.add_job(pick.cpu_ns)
        return pick

    def add(self, key: Hashable, pick: DevicePick[Any]) -> None:
        """Cache a pick and evict the oldest ones beyond the capacity."""
        with self._lock:
            self._entries.pop(key, None)  # the newest is the last
            self._entries[key] = _CachedPick(pick, self.uses)
            while len(self._entries) > self.capacity:
                del self._entries[next(iter(self._entries))]

    def clear(self) -> None:
        """Remove all cached picks, so that every job is decided again."""
        with self._lock:
            self._entries.clear()


recent_picks = PickCache()
