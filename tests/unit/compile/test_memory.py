"""Slots: no two values that are alive at once share one, and reuse does happen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlxweb.compile.memory import ALIGN, assign
from rlxweb.compile.plan import Operand, Step
from rlxweb.compile.target import Target
from rlxweb.ir.dtype import DType
from rlxweb.ir.layout import Layout
from rlxweb.ir.op import TensorType

TARGET = Target("test", frozenset(DType), lambda *a: True)
FIRST = 10
"""Values below this are inputs: given from outside, they have no slot."""


def operand(value: int) -> Operand:
    return Operand(value, Layout.dense((1,)))


@st.composite
def programs(
    draw: st.DrawFn,
) -> tuple[list[Step], list[Operand], dict[int, TensorType]]:
    """Up to 15 steps that read earlier values, and some values as outputs."""
    steps: list[Step] = []
    types = {}
    for at in range(draw(st.integers(1, 15))):
        known = [0, 1, *(s.output for s in steps)]
        reads = draw(st.lists(st.sampled_from(known), max_size=3))
        output = FIRST + at
        steps.append(
            Step("kernel", (), tuple(operand(v) for v in reads), output, "step")
        )
        types[output] = TensorType((draw(st.integers(0, 500)),), DType.F32)
    made = [s.output for s in steps]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
    return steps, [operand(v) for v in outputs], types


def lives(steps: list[Step], outputs: list[Operand]) -> dict[int, tuple[int, int]]:
    """Value → the steps from the one that makes it to the last one that reads it."""
    spans = {}
    for at, step in enumerate(steps):
        reads = [
            k for k, s in enumerate(steps) if step.output in [o.value for o in s.inputs]
        ]
        ends = len(steps) if step.output in [o.value for o in outputs] else at
        spans[step.output] = (at, max([ends, *reads]))
    return spans


@given(programs(), st.booleans())
def test_live_values_never_share(
    program: tuple[list[Step], list[Operand], dict[int, TensorType]], reuse: bool
) -> None:
    """Two values in one slot have lives that do not touch, and both fit into it."""
    steps, outputs, types = program
    slots, sizes = assign(steps, outputs, types, TARGET, reuse)
    spans = lives(steps, outputs)
    assert set(slots) == set(spans)
    for value, slot in slots.items():
        assert types[value].nbytes <= sizes[slot]
        for other, its_slot in slots.items():
            if other != value and its_slot == slot:
                (a0, a1), (b0, b1) = spans[value], spans[other]
                assert a1 < b0 or b1 < a0, (value, other)
    assert all(size % ALIGN == 0 for size in sizes)
    if not reuse:
        assert len(set(slots.values())) == len(slots)


def chain(sizes: list[int]) -> tuple[list[Step], list[Operand], dict[int, TensorType]]:
    steps = [
        Step("kernel", (), (operand(FIRST + k - 1 if k else 0),), FIRST + k, "")
        for k in range(len(sizes))
    ]
    types = {FIRST + k: TensorType((n,), DType.F32) for k, n in enumerate(sizes)}
    return steps, [operand(FIRST + len(sizes) - 1)], types


def test_a_chain_needs_two_slots() -> None:
    """A chain of any length needs two slots."""
    slots, sizes = assign(*chain([64] * 20), TARGET, True)
    assert len(sizes) == 2
    assert slots[FIRST] != slots[FIRST + 1]


def test_the_best_fitting_slot_is_taken_and_grown_if_none_fits() -> None:
    """A small value goes into a small hole; a large one grows the largest."""
    _, sizes = assign(*chain([64, 640, 64, 1280, 64]), TARGET, True)
    assert sizes == (256, 5120)


def test_inputs_have_no_slot() -> None:
    """What comes from outside is not the plan's memory."""
    slots, _ = assign(*chain([8]), TARGET, True)
    assert slots == {FIRST: 0}
