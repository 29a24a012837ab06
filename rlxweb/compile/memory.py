"""Gives every produced value a slot, and lets values share one when their lives do not
overlap.

The smallest free slot that is large enough, else the largest free one grown, else a new
one. Outputs live to the end of the run; a step's output never shares with its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlxweb.compile.plan import Operand, Step
from rlxweb.compile.target import Target
from rlxweb.ir.op import TensorType

ALIGN = 256


def assign(
    steps: Sequence[Step],
    outputs: Sequence[Operand],
    types: Mapping[int, TensorType],
    target: Target,
    reuse: bool,
) -> tuple[dict[int, int], tuple[int, ...]]:
    """(value → slot, bytes of each slot)."""
    touched = [{step.output, *(o.value for o in step.inputs)} for step in steps]
    last = {value: at for at, values in enumerate(touched) for value in values}
    forever = {o.value for o in outputs}

    slots: dict[int, int] = {}
    sizes: list[int] = []
    free: list[int] = []
    for at, step in enumerate(steps):
        need = max(4, target.nbytes(types[step.output]))
        need = (need + ALIGN - 1) // ALIGN * ALIGN
        slots[step.output] = _take(free, sizes, need)
        for value in sorted(touched[at]):
            if reuse and value in slots and last[value] == at and value not in forever:
                free.append(slots[value])
    return slots, tuple(sizes)


def _take(free: list[int], sizes: list[int], need: int) -> int:
    fitting = [s for s in free if sizes[s] >= need]
    if fitting:
        slot = min(fitting, key=lambda s: sizes[s])
    elif free:
        slot = max(free, key=lambda s: sizes[s])
        sizes[slot] = need
    else:
        sizes.append(need)
        return len(sizes) - 1
    free.remove(slot)
    return slot
