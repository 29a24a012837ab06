"""Cache of weights packed for kernels, kept for as long as the weights themselves
live.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, Generic, TypeVar
from weakref import finalize, ref

from rlxweb.core.fork_safety import ForkSafeLock

T = TypeVar("T")


class UsesConstantOperands:
    """Base of functions of a node that pack or convert operands once if they stay the
    same.
    """

    def set_constant_operands(self, indices: Collection[int]) -> None:
        """Tell which operands are the same from run to run, until a param is set."""
        raise NotImplementedError


class ConstantOperandTracker:
    """Tracker that tells a constant operand, the same array as in the run before, from
    one that is new in every run and not worth packing. It keeps no array alive.
    """

    def __init__(self) -> None:
        self._previous_root: Callable[[], Any] = _no_root

    def constant_root(self, array: Any) -> Any | None:
        """Return the array that owns the operand's memory; None where it is not the one
        of the run before, or its end cannot be observed.
        """
        root = array if array.base is None else array.base
        previous = self._previous_root()
        if previous is not root:
            try:
                self._previous_root = ref(root)
            except TypeError:  # bytes, say
                self._previous_root = _no_root
        return root if previous is root else None


def _no_root() -> None:
    """Return None, as the root of no operand."""


class PackCache(Generic[T]):
    """Cache of what is packed from arrays that nobody writes into; programs share
    it.
    """

    def __init__(self) -> None:
        self._packed: dict[Hashable, T] = {}
        self._lock = ForkSafeLock()

    def __len__(self) -> int:
        return len(self._packed)

    def get_or_pack(self, root: Any, key: Hashable, pack: Callable[[], T]) -> T | None:
        """Return the packed value, creating it at first; None where the array's end
        cannot be observed.

        root  whose memory the array is: itself, or what it is a view of
        key   which array of it, and how it is laid out
        """
        key = id(root), key
        packed = self._packed.get(key)
        if packed is None:
            with self._lock:
                packed = self._packed.get(key)
                if packed is None:
                    try:
                        finalize(root, self._packed.pop, key, None)
                    except TypeError:  # bytes, say
                        return None
                    packed = self._packed[key] = pack()
        return packed

    def pop(self, root: Any, key: Hashable) -> T | None:
        """Remove and return a packed value."""
        return self._packed.pop((id(root), key), None)
