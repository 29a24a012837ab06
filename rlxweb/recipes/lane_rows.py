"""Text of a transform that one lane walks alone, short, so that it compiles fast.

A driver that runs on a CPU makes of every memory access in the text some hundred
instructions, for lanes that read one cell, cells side by side, or each its own, inside
the buffer or not, and its compiler takes more than twice as long for twice as many. So
accesses stand in short loops, and a butterfly finds its values in two lists of the
lane's own, at places that the text names. It runs a third slower than text without
these loops.

In place, digit-reversed, as `rlxweb.recipes.fft_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlxweb.recipes.butterfly import Emitter, Pair
from rlxweb.recipes.fft_rows import Last, Load, Store, place


def turns_of(n: int, radices: Sequence[int]) -> int:
    """Loop turns of one lane for one row: butterflies, and values moved in and out."""
    return sum(n // radix * (1 + 2 * radix) for radix in radices)


def _each(e: Emitter, count: str, work: Callable[[Emitter, str], None]) -> None:
    """`work` on every place of the lists, one to a turn: two compile a tenth longer."""
    inner = Emitter("v")
    work(inner, "q")
    body = inner.text("      ")
    e.do(f"for (var q = 0u; q < {count}; q++) {{\n{body}\n    }}")


@dataclass(frozen=True, slots=True)
class LanePasses:
    """The transform of one row; what the fields do is told at `fft_rows.passes`.

    They are asked for a cell by its text alone, with an offset of 0.
    """

    n: int
    radices: tuple[int, ...]
    table: Callable[[str], str]
    first: Load
    load: Load
    store: Store
    last: Last

    @property
    def room(self) -> str:
        """The lists of a lane."""
        size = max(self.radices)
        return "".join(
            f"var<private> {name}: array<f32, {size}>;\n"
            for name in ("list_re", "list_im")
        )

    def text(self) -> str:
        """All passes, one after the other; two that are alike have one butterfly."""
        if len(self.radices) == 2 and self.radices[0] == self.radices[1]:
            return self._twice()
        return "\n".join(self._pass(at) for at in range(len(self.radices)))

    def _pass(self, at: int) -> str:
        radix, before = self.radices[at], math.prod(self.radices[:at])
        stride = self.n // before // radix
        e, ends = Emitter("abcdefgh"[at]), at == len(self.radices) - 1
        m = e.let(f"j % {stride}u")
        if ends:
            base = place(e, "j", self.radices[:-1], self.n)
        else:
            base = e.let(f"(j / {stride}u) * {stride * radix}u + {m}")
        walk = _Walk(self, radix, base, f"{stride}u")
        _each(e, f"{radix}u", walk.fetch(self.load if at else self.first))
        walk.butterfly(e)
        _each(e, f"{radix}u", walk.end if ends else walk.turned(m, before))
        return f"  for (var j = 0u; j < {self.n // radix}u; j++) {{\n{e.text()}\n  }}"

    def _twice(self) -> str:
        """The butterfly is most of the text. What one pass alone does is a loop without
        a turn in the other: a driver that runs lanes in step jumps over it.
        """
        radix, e = self.radices[0], Emitter("a")
        stride = e.let(f"select(1u, {radix}u, at == 0u)")
        m = e.let(f"j % {stride}")
        base = e.let(f"(j / {stride}) * {stride} * {radix}u + {m}")
        walk = _Walk(self, radix, base, stride)
        only_first, only_last = f"{radix}u * (1u - at)", f"{radix}u * at"
        _each(e, only_first, walk.fetch(self.first))
        _each(e, only_last, walk.fetch(self.load))
        walk.butterfly(e)
        _each(e, only_first, walk.turned(m, 1))
        _each(e, only_last, walk.end)
        return (
            "  for (var at = 0u; at < 2u; at++) {\n"
            f"  for (var j = 0u; j < {radix}u; j++) {{\n{e.text()}\n  }}\n  }}"
        )


@dataclass(frozen=True, slots=True)
class _Walk:
    """One pass: the values of a butterfly are `stride` apart from `base` on."""

    of: LanePasses
    radix: int
    base: str
    stride: str

    def cell(self, e: Emitter, q: str) -> str:
        return e.let(f"{self.base} + {q} * {self.stride}")

    def fetch(self, get: Load) -> Callable[[Emitter, str], None]:
        return lambda e, q: _keep(e, q, get(e, self.cell(e, q), 0))

    def butterfly(self, e: Emitter) -> None:
        values = [_kept(e, f"{q}u") for q in range(self.radix)]
        for q, y in enumerate(e.dft(values)):
            _keep(e, f"{q}u", y)

    def turned(self, m: str, before: int) -> Callable[[Emitter, str], None]:
        """Back to where it was, turned for the passes to come."""

        def work(e: Emitter, q: str) -> None:
            y, cell, n = _kept(e, q), self.cell(e, q), self.of.n
            turn = e.let(f"{m} * {q} * {before}u")
            root = e.let(self.of.table(turn)), e.let(self.of.table(f"{n}u + {turn}"))
            self.of.store(e, cell, e.times(y, *root))

        return work

    def end(self, e: Emitter, q: str) -> None:
        y, cell = _kept(e, q), self.cell(e, q)
        self.of.last(e, f"j + {q} * {self.of.n // self.radix}u", cell, y)


def _kept(e: Emitter, q: str) -> Pair:
    return e.let(f"list_re[{q}]"), e.let(f"list_im[{q}]")


def _keep(e: Emitter, q: str, value: Pair) -> None:
    e.do(f"list_re[{q}] = {value[0]};")
    e.do(f"list_im[{q}] = {value[1]};")
