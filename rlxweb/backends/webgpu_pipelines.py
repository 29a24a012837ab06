"""Pipelines of one device: made once per shader, forgotten when nobody needs them.

The least recently asked-for go first once there are more than a bound, or once they
take more memory, but never one that a program dispatches. Engines on the same port
share them: what one made is there for the next, and goes when the bound says so, not
never, though the engine be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Literal, cast
from weakref import WeakSet

from rlxweb.forked import ForkLock
from rlxweb.gpu.port import Access, Port
from rlxweb.kept import Kept
from rlxweb.kernels.launch import Shader

if TYPE_CHECKING:
    from rlxweb.backends.webgpu_program import ProgramBuilder, WebGpuProgram

Trusts = Literal["none", "proven", "all"]
CAPACITY = 256
CAPACITY_BYTES = 128 << 20
# What drivers keep cannot be asked for. On lavapipe, the hungriest that was measured, a
# pipeline took 0.2 MB and 130 bytes for each character of its shader.
_EACH, _PER_CHARACTER = 200_000, 130


class Pipelines:
    """Shader → pipeline handle of a port.

    trusts    which of the shaders that this package wrote are compiled without checks:
              those that say they stay inside, all, or none
    programs  those that dispatch them, of every engine on the port
    builders  those that make such programs now
    warmed    handles that were dispatched before
    """

    def __init__(
        self,
        port: Port,
        capacity: int = CAPACITY,
        most_bytes: int = CAPACITY_BYTES,
        *,
        trusts: Trusts = "none",
    ) -> None:
        self.port = port
        self.trusts = trusts
        self.programs: WeakSet[WebGpuProgram] = WeakSet()
        self.builders: list[ProgramBuilder] = []
        self.warmed: set[int] = set()
        self._made: Kept[tuple[Shader, bool], int] = Kept(capacity, most_bytes)
        self._lock = ForkLock()

    def __len__(self) -> int:
        return len(self._made)

    @property
    def capacity(self) -> int:
        return self._made.count

    def values(self) -> tuple[int, ...]:
        """All handles, least recently asked-for first."""
        return tuple(self._made.values())

    async def get(self, shader: Shader, claimed: set[int], ours: bool = False) -> int:
        """The handle, compiled now if need be.

        claimed   gets it before anybody can free it
        ours      whether this package wrote all of the shader
        Errors    ShaderRejected.
        """
        trusted = self.trusts == "all" or (self.trusts == "proven" and shader.in_bounds)
        checked = not (ours and trusted)
        key = (shader, checked)
        while (found := self._claim(key, claimed)) is None:
            layout = cast("tuple[Access, ...]", shader.layout)
            constants = dict(shader.constants)
            handle = await self.port.pipeline(
                shader.source, layout, constants, checked=checked
            )
            with self._lock:
                # Another thread or task may have made it meanwhile; one is kept.
                if key in self._made:
                    self.port.destroy(handle)
                else:
                    nbytes = _EACH + _PER_CHARACTER * len(shader.source)
                    self._made.put(key, handle, nbytes)
        return found

    def _claim(self, key: tuple[Shader, bool], claimed: set[int]) -> int | None:
        with self._lock:
            found = self._made.get(key)
            if found is not None:
                claimed.add(found)
            return found

    def in_use(self) -> set[int]:
        """What is dispatched by a program, or will be by one that is being made."""
        in_use = {h for p in list(self.programs) for h in p.pipelines}
        return in_use | {h for b in list(self.builders) for h in b.claimed}

    def trim(self, in_use: Callable[[], Set[int]] | None = None) -> None:
        """Free the oldest beyond the bounds, sparing handles that are in use."""
        with self._lock:
            for handle in self._made.trim((in_use or self.in_use)().__contains__):
                self.warmed.discard(handle)
                self.port.destroy(handle)

    def forget(self) -> None:
        """Drop all handles without freeing them: the port is about to close."""
        self._made.clear()
