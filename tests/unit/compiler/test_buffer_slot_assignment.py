"""Slot assignment: values that are alive at once never share a slot, and slots are
reused.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlxweb.compiler.buffer_slot_assignment import SLOT_ALIGNMENT, assign_slots
from rlxweb.compiler.plan import PlanOperand, PlanStep
from rlxweb.compiler.target import Target
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.op import TensorType

TARGET = Target("test", frozenset(DType), lambda *a: True)
FIRST_OUTPUT = 10
"""Values below this are inputs and have no slot."""


def operand(value: int) -> PlanOperand:
    return PlanOperand(value, Layout.dense((1,)))


@st.composite
def random_programs(
    draw: st.DrawFn,
) -> tuple[list[PlanStep], list[PlanOperand], dict[int, TensorType]]:
    """Draw up to 15 steps that read earlier values, and some values as outputs."""
    steps: list[PlanStep] = []
    types = {}
    for index in range(draw(st.integers(1, 15))):
        available = [0, 1, *(s.output for s in steps)]
        reads = draw(st.lists(st.sampled_from(available), max_size=3))
        output = FIRST_OUTPUT + index
        steps.append(
            PlanStep("kernel", (), tuple(operand(v) for v in reads), output, "step")
        )
        types[output] = TensorType((draw(st.integers(0, 500)),), DType.F32)
    computed = [s.output for s in steps]
    outputs = draw(st.lists(st.sampled_from(computed), min_size=1, max_size=3))
    return steps, [operand(v) for v in outputs], types


def value_lifetimes(
    steps: list[PlanStep], outputs: list[PlanOperand]
) -> dict[int, tuple[int, int]]:
    """Map each value to the steps that compute it and last read it."""
    lifetimes = {}
    for index, step in enumerate(steps):
        reads = [
            k for k, s in enumerate(steps) if step.output in [o.value for o in s.inputs]
        ]
        last_use = len(steps) if step.output in [o.value for o in outputs] else index
        lifetimes[step.output] = (index, max([last_use, *reads]))
    return lifetimes


@given(random_programs(), st.booleans())
def test_live_values_never_share_a_slot(
    program: tuple[list[PlanStep], list[PlanOperand], dict[int, TensorType]],
    reuse: bool,
) -> None:
    """Two values in one slot have disjoint lifetimes, and both fit into it."""
    steps, outputs, types = program
    slots, sizes = assign_slots(steps, outputs, types, TARGET, reuse)
    lifetimes = value_lifetimes(steps, outputs)
    assert set(slots) == set(lifetimes)
    for value, slot in slots.items():
        assert types[value].nbytes <= sizes[slot]
        for other, other_slot in slots.items():
            if other != value and other_slot == slot:
                (a0, a1), (b0, b1) = lifetimes[value], lifetimes[other]
                assert a1 < b0 or b1 < a0, (value, other)
    assert all(size % SLOT_ALIGNMENT == 0 for size in sizes)
    if not reuse:
        assert len(set(slots.values())) == len(slots)


def chain_program(
    sizes: list[int],
) -> tuple[list[PlanStep], list[PlanOperand], dict[int, TensorType]]:
    steps = [
        PlanStep(
            "kernel",
            (),
            (operand(FIRST_OUTPUT + k - 1 if k else 0),),
            FIRST_OUTPUT + k,
            "",
        )
        for k in range(len(sizes))
    ]
    types = {FIRST_OUTPUT + k: TensorType((n,), DType.F32) for k, n in enumerate(sizes)}
    return steps, [operand(FIRST_OUTPUT + len(sizes) - 1)], types


def test_a_chain_needs_two_slots() -> None:
    """A chain of any length needs two slots."""
    slots, sizes = assign_slots(*chain_program([64] * 20), TARGET, True)
    assert len(sizes) == 2
    assert slots[FIRST_OUTPUT] != slots[FIRST_OUTPUT + 1]


def test_best_fitting_slot_is_used_or_the_largest_is_grown() -> None:
    """A small value goes into a small free slot; a large one grows the largest."""
    _, sizes = assign_slots(*chain_program([64, 640, 64, 1280, 64]), TARGET, True)
    assert sizes == (256, 5120)


def test_inputs_have_no_slot() -> None:
    """Memory of inputs does not belong to the plan."""
    slots, _ = assign_slots(*chain_program([8]), TARGET, True)
    assert slots == {FIRST_OUTPUT: 0}
