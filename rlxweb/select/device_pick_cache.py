"""Cache of the picks of recurring jobs; each entry serves a limited number of uses.

What makes a pick the same is the caller's key. A caller that has an entry in hand may
ask it directly, without the key. Knows no job and no candidate.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlxweb.core.environment import choice_environment
from rlxweb.core.fork_safety import ForkSafeLock, register_child_callback
from rlxweb.select.calibration.calibration_store import calibration_store
from rlxweb.select.calibration.profitability import profitability_policy

if TYPE_CHECKING:
    from rlxweb.select.chooser import DevicePick


@dataclass(slots=True, eq=False)
class CachedPick:
    """Pick with the number of times it may still be used, and the circumstances that
    it was made in.
    """

    pick: DevicePick[Any]
    uses: int = 0
    circumstances: tuple[object, ...] = ()

    def is_current(self) -> bool:
        """Return whether the environment and the measurements are what they were."""
        return self.circumstances == present_circumstances()

    def use(self) -> bool:
        """Use the pick once more; return whether it could be."""
        # Without a lock: two threads at once may use it once more than was said.
        if self.uses < 1:
            return False
        self.uses -= 1
        if self.pick.cpu_ns:  # 0 where a place was named
            profitability_policy.add_job(self.pick.cpu_ns)
        return True


def present_circumstances() -> tuple[object, ...]:
    """Return what every choice of a device depends on besides its job."""
    return *choice_environment(), calibration_store.change_count


@dataclass(slots=True, weakref_slot=True, eq=False)
class PickCache:
    """Cache of picks for recurring jobs, which keeps the choice cheap for small ones.

    Each is used `uses` times and then made anew, with what runs have taught meanwhile,
    so the oldest go first: whatever is in use is young. A forked child makes its own:
    not every engine comes along.
    """

    uses: int = 256
    capacity: int = 256
    _entries: dict[Hashable, CachedPick] = field(default_factory=dict)
    _lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    def __post_init__(self) -> None:
        register_child_callback(self, PickCache._clear_in_child)

    def _clear_in_child(self) -> None:
        """Remove all cached picks in a forked child, which cannot use every engine of
        its parent.
        """
        self._remove_all()

    def get(self, key: Hashable) -> CachedPick | None:
        """Return the entry of a key and use it; None if there is none or its uses are
        spent.
        """
        entry = self._entries.get(key)
        return entry if entry is not None and entry.use() else None

    def add(
        self, key: Hashable, pick: DevicePick[Any], circumstances: tuple[object, ...]
    ) -> CachedPick:
        """Cache a pick, evict the oldest ones beyond the capacity, and return its
        entry.

        circumstances  those from before the choice
        """
        entry = CachedPick(pick, self.uses, circumstances)
        with self._lock:
            replaced = self._entries.pop(key, None)  # the newest is the last
            if replaced is not None:
                replaced.uses = 0
            self._entries[key] = entry
            while len(self._entries) > self.capacity:
                self._entries.pop(next(iter(self._entries))).uses = 0
        return entry

    def clear(self) -> None:
        """Remove all cached picks, so that every job is decided again."""
        with self._lock:
            self._remove_all()

    def _remove_all(self) -> None:
        """Remove all entries, also for those who have one in hand."""
        for entry in self._entries.values():
            entry.uses = 0
        self._entries.clear()


recent_picks = PickCache()
