"""If, Loop and Scan: branches are chosen and bodies unrolled while a model is read.

What decides must be known, or become known by the values of small inputs. Of an If
whose condition is not, both branches are computed and the values chosen, where their
types are the same; a Loop that may stop early at an unknown place goes on with its
values kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlxweb.errors import RlxError
from rlxweb.ir.shape import normal_axis
from rlxweb.ir.tensor import Tensor
from rlxweb.onnx.converters import Call, Value, converts
from rlxweb.onnx.movement import squeezed, stacked
from rlxweb.onnx.records import Declared, GraphRecord

MOST_TURNS = 10_000
"""A loop is unrolled to as many turns."""

MOST_SWITCHES = 16
"""Integers of an input that chooses between branches, at most."""

Ints = tuple[int, ...]


@converts("If")
def _if(
    call: Call, condition: Tensor, *, then_branch: GraphRecord, else_branch: GraphRecord
) -> tuple[Value, ...]:
    if call.g.known(condition) is None and not _by_switches(call, condition):
        both = _both(call, then_branch, else_branch)
        if both is not None:
            choice = call.g.reshape(condition, ())
            return tuple(a if a is b else call.g.where(choice, a, b) for a, b in both)
    # Which branch it is has to be known.
    branch = then_branch if call.number(condition, "the condition") else else_branch
    return tuple(call.inner(branch, ()))


def _by_switches(call: Call, condition: Tensor) -> bool:
    """Does it depend on nothing but a few integers or bools that a run gives?

    Then the model is converted for their values, and one branch is computed.
    """
    inputs = call.g.named("input")
    behind = [inputs[name].type for name in call.g.inputs_behind(condition)]
    return all(t.numel <= MOST_SWITCHES and not t.dtype.is_float for t in behind)


def _both(
    call: Call, then_branch: GraphRecord, else_branch: GraphRecord
) -> list[tuple[Value, Value]] | None:
    """The values of both branches; None where they differ in type, or one of them
    cannot be: it may be there for inputs of another shape.
    """
    try:
        branches = (call.inner(one, ()) for one in (then_branch, else_branch))
        pairs = list(zip(*branches, strict=True))
    except RlxError:
        return None
    return pairs if all(_alike(a, b) for a, b in pairs) else None


def _alike(a: Value, b: Value) -> bool:
    return a is b or (
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and (a.shape, a.dtype) == (b.shape, b.dtype)
    )


@converts("Loop")
def _loop(
    call: Call,
    trips: Tensor | None = None,
    condition: Tensor | None = None,
    *state: Value,
    body: GraphRecord,
) -> tuple[Value, ...]:
    most = None if trips is None else int(call.number(trips, "the number of turns"))
    goes = call.hold(np.array(True)) if condition is None else condition
    carried, scans = list(state), len(body.outputs) - 1 - len(state)
    found: list[list[Value]] = [[] for _ in range(scans)]
    turn = 0
    while most is None or turn < most:
        known = _goes_on(call, goes, most if not scans else None)
        if known is False:
            break
        _check_turns(call, turn)
        counter = call.g.hold(np.array(turn, np.int64))
        outs = call.inner(body, (counter, goes, *carried))
        now, values = outs[0], outs[1 : 1 + len(carried)]
        if known is None:
            values = _kept_after(call, goes, values, carried)
            now = call.g.where(goes, now, goes)
        carried = values
        goes = call.g.reshape(now, ())
        for kept, value in zip(found, outs[1 + len(carried) :], strict=True):
            kept.append(value)
        turn += 1
    ends = body.outputs[1 + len(carried) :]
    return (
        *carried,
        *(_gathered(call, xs, d) for xs, d in zip(found, ends, strict=True)),
    )


def _goes_on(call: Call, goes: Tensor, most: int | None) -> bool | None:
    """Is there another turn? None where only the device knows, which `most` allows."""
    if call.g.known(goes) is None and most is not None:
        return None
    return bool(call.number(goes, "whether the loop goes on"))


def _kept_after(
    call: Call, goes: Tensor, new: Sequence[Value], old: Sequence[Value]
) -> list[Value]:
    """The new values while the loop goes on, the old ones after it."""
    choice = call.g.reshape(goes, ())
    if not all(_alike(a, b) for a, b in zip(new, old, strict=True)):
        call.refuse(
            "it may stop at a turn that only the device knows",
            "its values must keep their types then",
        )
    return [
        a if a is b else call.g.where(choice, a, b)
        for a, b in zip(new, old, strict=True)
    ]


def _check_turns(call: Call, turn: int) -> None:
    if turn >= MOST_TURNS:
        call.refuse(f"it takes more than {turn:,} turns", f"at most {MOST_TURNS:,}")


def _gathered(call: Call, xs: list[Value], declared: Declared) -> Tensor:
    """The values of all turns along a new first axis."""
    if xs:
        return stacked(call, xs)
    kind = declared.type
    dims = None if kind is None else kind.dims
    if kind is None or dims is None or any(not isinstance(d, int) for d in dims):
        call.refuse(
            f"no turn is taken, and the shape of '{declared.name}' is not declared"
        )
    made: Tensor = call.hold(np.zeros((0, *dims), kind.dtype))
    return made


@converts("Scan", since=9)
def _scan(
    call: Call,
    *given: Value,
    body: GraphRecord,
    num_scan_inputs: int,
    scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None,
    scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
) -> tuple[Value, ...]:
    first = len(given) - num_scan_inputs
    state, scanned = list(given[:first]), given[first:]
    if first < 0 or not scanned:
        call.contradict(f"{num_scan_inputs} of {len(given)} inputs are scanned")
    axes = scan_input_axes or (0,) * len(scanned)
    axes = tuple(normal_axis(a, x.rank) for a, x in zip(axes, scanned, strict=True))
    turned = scan_input_directions or (0,) * len(scanned)
    lengths = {x.shape[a] for x, a in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        call.contradict(f"scanned axes of {sorted(lengths)} elements", "one length")
    (length,) = lengths
    scans = len(body.outputs) - first
    found: list[list[Value]] = [[] for _ in range(scans)]
    for turn in range(length):
        _check_turns(call, turn)
        places = ((length - 1 - turn) if back else turn for back in turned)
        parts = [
            squeezed(call, call.g.narrow(x, a, at, 1), (a,))
            for x, a, at in zip(scanned, axes, places, strict=True)
        ]
        outs = call.inner(body, (*state, *parts))
        state = outs[:first]
        for kept, value in zip(found, outs[first:], strict=True):
            kept.append(value)
    ends = scan_output_axes or (0,) * scans
    back = scan_output_directions or (0,) * scans
    return (
        *state,
        *(
            stacked(call, xs[::-1] if b else xs, axis)
            for xs, axis, b in zip(found, ends, back, strict=True)
        ),
    )


@converts("Scan", until=8)
def _old_scan(
    call: Call,
    *inputs: Value,
    body: GraphRecord,
    num_scan_inputs: int,
    directions: Ints | None = None,
) -> tuple[Value, ...]:
    """Version 8: every input has a batch in front, which is scanned one by one."""
    lengths, *given = inputs
    if lengths is not None:
        call.refuse("lengths that differ within a batch", "one length for all")
    batch = given[0].shape[0]
    outs = []
    for at in range(batch):
        one = [squeezed(call, call.g.narrow(x, 0, at, 1), (0,)) for x in given]
        outs.append(
            _scan(
                call,
                *one,
                body=body,
                num_scan_inputs=num_scan_inputs,
                scan_input_directions=directions,
            )
        )
    return tuple(stacked(call, each) for each in zip(*outs, strict=True))
