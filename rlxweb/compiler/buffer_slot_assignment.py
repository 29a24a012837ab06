"""Slot assignment: values whose lifetimes do not overlap share a buffer.

The smallest free slot that is large enough, else the largest free one grown, else a new
one. Outputs live to the end of the run; a step's output never shares with its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlxweb.compiler.plan import PlanOperand, PlanStep
from rlxweb.compiler.target import Target
from rlxweb.ir.op import TensorType

SLOT_ALIGNMENT = 256


def assign_slots(
    steps: Sequence[PlanStep],
    outputs: Sequence[PlanOperand],
    types: Mapping[int, TensorType],
    target: Target,
    reuse: bool,
) -> tuple[dict[int, int], tuple[int, ...]]:
    """Return the slot of each value and the bytes of each slot."""
    step_values = [{step.output, *(o.value for o in step.inputs)} for step in steps]
    last_use = {
        value: index for index, values in enumerate(step_values) for value in values
    }
    output_values = {o.value for o in outputs}

    slots: dict[int, int] = {}
    sizes: list[int] = []
    free_slots: list[int] = []
    for index, step in enumerate(steps):
        nbytes = max(4, target.nbytes(types[step.output]))
        nbytes = (nbytes + SLOT_ALIGNMENT - 1) // SLOT_ALIGNMENT * SLOT_ALIGNMENT
        slots[step.output] = _take_slot(free_slots, sizes, nbytes)
        for value in sorted(step_values[index]):
            if (
                reuse
                and value in slots
                and last_use[value] == index
                and value not in output_values
            ):
                free_slots.append(slots[value])
    return slots, tuple(sizes)


def _take_slot(free_slots: list[int], sizes: list[int], nbytes: int) -> int:
    """Take the smallest free slot that fits, else grow the largest free one, else add
    one.
    """
    fitting = [s for s in free_slots if sizes[s] >= nbytes]
    if fitting:
        slot = min(fitting, key=lambda s: sizes[s])
    elif free_slots:
        slot = max(free_slots, key=lambda s: sizes[s])
        sizes[slot] = nbytes
    else:
        sizes.append(nbytes)
        return len(sizes) - 1
    free_slots.remove(slot)
    return slot
