"""How a linear recurrence with products between its channels runs on a device.

Two ways, as of a recurrent network: a call for every step, an invocation for every
channel (any device), or a workgroup for every row that keeps the state to itself over
many steps. A step is M (x + s), of which x + s is stored: M mixes the parts of a
channel's state by coefficients, and the channels by weights that coefficients scale
before the product (transposed) or behind it. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import TURNED, Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import MAX_TURNS, Limits
from rlxweb.recipes.recurrent_calls import MAIN, MOST_LANES, moved_run


@dataclass(frozen=True, slots=True)
class Linear:
    """T steps of B rows of H channels with m numbers each; G products a step."""

    T: int
    B: int
    m: int
    H: int
    G: int
    reverse: bool
    transposed: bool
    turned: bool

    @property
    def state(self) -> int:
        return self.B * self.m * self.H

    @property
    def coefs(self) -> int:
        """Of every channel: what it keeps, then what it is given by products."""
        return self.m * self.m + self.G * self.m

    @property
    def order(self) -> range:
        return range(self.T)[:: -1 if self.reverse else 1]

    def weight(self) -> tuple[int, int, int]:
        """Elements to the weight of the next channel, the next term, the next gate."""
        H, G = self.H, self.G
        row, column, gate = (1, H, H * H) if self.turned else (G * H, 1, H)
        return (row, column, gate) if self.transposed else (column, row, gate)

    def kept(self, coef: str, values: str) -> list[str]:
        """What each part of a channel's state becomes without the others."""
        made = []
        for i in range(self.m):
            terms = []
            for q in range(self.m):
                at = q * self.m + i if self.transposed else i * self.m + q
                terms.append(f"{coef.format(at)} * {values}{q}")
            made.append(" + ".join(terms))
        return made

    def given(self, coef: str, k: int, i: int) -> str:
        """The coefficient of gate k and part i."""
        return coef.format(self.m * self.m + k * self.m + i)


def linear_of(inputs: Types, attrs: Mapping[str, Any]) -> Linear:
    """The recurrence that operands and attributes say; they have been checked."""
    T, B, m, H = inputs[0].shape
    G = inputs[2].shape[1] // H if H else 1
    turned = attrs.get(TURNED, (False,) * 3)[2]
    return Linear(T, B, m, H, G, attrs["reverse"], attrs["transposed"], turned)


def _axes(one: Linear, steps: int, parallel: bool) -> tuple[Axis, ...]:
    return (
        Axis("row", one.B),
        Axis("time", steps, "whole"),
        Axis("unit", one.H, "parallel" if parallel else "whole"),
        Axis("k", one.H, "whole"),
        Axis("gate", one.G, "whole"),
        Axis("part", one.m, "whole"),
        Axis("coef", one.coefs, "whole"),
    )


def _accesses(one: Linear, first: int, parallel: bool) -> tuple[Access, ...]:
    """x, coefficients and weights; where other channels are read too, all of a row."""
    H, m, N = one.H, one.m, one.coefs
    unit, k, gate = one.weight()
    own = 0 if parallel else 1
    others = 1 if parallel else 0
    return (
        Access(
            Ref("in", 0),
            (m * H, one.state, own, others, 0, H, 0),
            offset=first * one.state,
        ),
        Access(
            Ref("in", 1),
            (N * H, one.B * N * H, own, others, 0, 0, H),
            offset=first * one.B * N * H,
        ),
        Access(Ref("in", 2), (0, 0, unit, k, gate, 0, 0)),
    )


def _values(one: Linear) -> dict[str, int | float]:
    unit, k, gate = one.weight()
    return {
        "size": one.H,
        "s_row": one.m * one.H,
        "c_row": one.coefs * one.H,
        "x_time": one.state,
        "c_time": one.B * one.coefs * one.H,
        "w_unit": unit,
        "w_k": k,
        "w_gate": gate,
    }


def _ends(one: Linear, state: Ref) -> tuple[Call, Call]:
    first = moved_run(Ref("in", 3), Ref("scratch", 0), one.state)
    return first, moved_run(state, Ref("out"), one.state, one.T * one.state)


# --- a call for every step ----------------------------------------------------------


def linear_step_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe | None:
    """The state goes to and fro between two temporaries. None for types but f32."""
    one = linear_of(inputs, attrs)
    if out.dtype is not DType.F32:
        return None
    both = (Ref("scratch", 0), Ref("scratch", 1))
    first, last = _ends(one, both[one.T % 2])
    steps = [
        _step(one, t, both[s % 2], both[(s + 1) % 2]) for s, t in enumerate(one.order)
    ]
    return Recipe((first, *steps, last), (Scratch(one.state),) * 2)


def _step(one: Linear, t: int, old: Ref, new: Ref) -> Call:
    H, m = one.H, one.m
    return Call(
        "linear_step",
        axes=_axes(one, 1, True),
        accesses=(
            *_accesses(one, t, True),
            Access(old, (m * H, 0, 0, 1, 0, H, 0)),
            Access(new, (m * H, 0, 1, 0, 0, H, 0), "write"),
            Access(
                Ref("out"), (m * H, 0, 1, 0, 0, H, 0), "write", offset=t * one.state
            ),
        ),
        grid=(("row", 1), ("unit", 1)),
        values=_values(one),
        source=_step_text(one),
        turns=1.0 / (one.G * m * one.coefs),
    )


def _step_text(one: Linear) -> str:
    """What other channels send is worked out anew by each that is sent it."""
    m, G = one.m, one.G
    coef = "ld1(mixed + {}u * u.size + own)"
    lines = [
        "let j = item % u.unit;",
        "let row = item / u.unit;",
        "let own = u.at_unit + j;",
        "let line = row * u.s_row;",
        "let mixed = row * u.c_row;",
        "let to = line + j;",
    ]
    for i in range(m):
        at = f"line + {i}u * u.size + own"
        lines.append(f"let p{i} = ld0({at}) + ld3({at});")
        lines.append(f"st5(to + {i}u * u.size, p{i});")
    lines += [f"var a{k} = 0.0;" for k in range(G)]
    lines.append("for (var k = 0u; k < u.k; k++) {")
    lines.append("  let w = k * u.w_k + j * u.w_unit;")
    parts = range(m) if one.transposed else range(1)
    for i in parts:
        at = f"line + {i}u * u.size + k"
        lines.append(f"  let v{i} = ld0({at}) + ld3({at});")
    for k in range(G):
        sent = "v0"
        if one.transposed:
            of_k = coef.replace("own", "k")
            sent = " + ".join(f"{one.given(of_k, k, i)} * v{i}" for i in range(m))
        lines.append(f"  a{k} = fma({sent}, ld2(w + {k}u * u.w_gate), a{k});")
    lines.append("}")
    for i, kept in enumerate(one.kept(coef, "p")):
        terms = [kept, *_received(one, coef, i)]
        lines.append(f"st4(to + {i}u * u.size, {' + '.join(terms)});")
    return "\n".join([MAIN, *(f"  {line}" for line in lines), "}"])


def _received(one: Linear, coef: str, i: int) -> list[str]:
    """The terms of products a0, a1, … in part i of a channel's state."""
    if one.transposed:
        return [f"a{k}" for k in range(one.G)] if i == 0 else []
    return [f"{one.given(coef, k, i)} * a{k}" for k in range(one.G)]


# --- a workgroup for every row ------------------------------------------------------


def linear_row_recipe(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """As many steps a call as loops and bindings allow.

    None where a row's state does not fit workgroup memory, and for other types.
    """
    one = linear_of(inputs, attrs)
    if out.dtype is not DType.F32 or not one.H:
        return None
    lanes = min(MOST_LANES, 1 << (one.H - 1).bit_length(), limits.workgroup_lanes)
    lanes = 1 << (lanes.bit_length() - 1)
    # The last look at a loop's end counts as a turn of it.
    turns = -(-one.H // lanes) * (one.H + 4) + 8
    most = min(limits.max_storage_buffer_binding_size, limits.max_buffer_size) // 4
    wide = one.B * one.coefs * one.H
    chunk = max(1, min(one.T, MAX_TURNS // turns, (most - 128) // max(1, wide)))
    shared = 4 * _cells(one)
    if turns > MAX_TURNS or shared > limits.max_compute_workgroup_storage_size:
        return None
    first, last = _ends(one, Ref("scratch", 0))
    starts = list(range(0, one.T, chunk))
    calls = [
        _rows(one, start, min(chunk, one.T - start), lanes, turns)
        for start in (reversed(starts) if one.reverse else starts)
    ]
    return Recipe((first, *calls, last), (Scratch(one.state),))


def _cells(one: Linear) -> int:
    """Floats of workgroup memory: the state, and what is sent to other channels."""
    return (one.m + (one.G if one.transposed else 1)) * one.H


def _rows(one: Linear, first: int, steps: int, lanes: int, turns: int) -> Call:
    H, m = one.H, one.m
    around = steps * H * H * one.G * m * one.coefs
    return Call(
        "linear_rows",
        axes=_axes(one, steps, False),
        accesses=(
            *_accesses(one, first, False),
            Access(Ref("scratch", 0), (m * H, 0, 1, 0, 0, H, 0), "update"),
            Access(
                Ref("out"),
                (m * H, one.state, 1, 0, 0, H, 0),
                "write",
                offset=first * one.state,
            ),
        ),
        grid=(("row", 1),),
        per="workgroup",
        workgroup=lanes,
        values=_values(one),
        source=_rows_text(one),
        shared_bytes=4 * _cells(one),
        turns=steps * turns / max(1, around),
    )


def _rows_text(one: Linear) -> str:
    H, m, G = one.H, one.m, one.G
    walk = f"for (var j = lid; j < {H}u; j += WG) {{"
    sent = G if one.transposed else 1
    t = "u.time - 1u - s" if one.reverse else "s"
    lines = [
        "let row = item;",
        "let line = row * u.s_row;",
        walk,
        *(f"  state[{i * H}u + j] = ld3(line + {i}u * u.size + j);" for i in range(m)),
        "}",
        "for (var s = 0u; s < u.time; s++) {",
        f"  let t = {t};",
        "  let x = line + t * u.x_time;",
        "  let mixed = row * u.c_row + t * u.c_time;",
        *(f"  {line}" for line in _phases(one, walk)),
        "}",
        walk,
        *(f"  st3(line + {i}u * u.size + j, state[{i * H}u + j]);" for i in range(m)),
        "}",
    ]
    rooms = [
        f"var<workgroup> state: array<f32, {m * H}>;",
        f"var<workgroup> sent: array<f32, {sent * H}>;",
    ]
    return "\n".join([*rooms, MAIN, *(f"  {line}" for line in lines), "}"])


def _phases(one: Linear, walk: str) -> list[str]:
    """One step: what each channel keeps and sends, and then what it is sent.

    A lane has the same channels in both, so only what is sent waits at the barriers.
    """
    H, m, G = one.H, one.m, one.G
    coef = "ld1(mixed + {}u * u.size + j)"
    first = []
    for i in range(m):
        first.append(f"let p{i} = ld0(x + {i}u * u.size + j) + state[{i * H}u + j];")
        first.append(f"st4(x + {i}u * u.size + j, p{i});")
    for i, kept in enumerate(one.kept(coef, "p")):
        first.append(f"state[{i * H}u + j] = {kept};")
    if one.transposed:
        for k in range(G):
            terms = (f"{one.given(coef, k, i)} * p{i}" for i in range(m))
            first.append(f"sent[{k * H}u + j] = {' + '.join(terms)};")
    else:
        first.append("sent[j] = p0;")
    second = [f"var a{k} = 0.0;" for k in range(G)]
    second.append(f"for (var k = 0u; k < {H}u; k++) {{")
    second.append("  let w = k * u.w_k + j * u.w_unit;")
    for k in range(G):
        value = f"sent[{k * H}u + k]" if one.transposed else "sent[k]"
        second.append(f"  a{k} = fma({value}, ld2(w + {k}u * u.w_gate), a{k});")
    second.append("}")
    for i in range(m):
        got = _received(one, coef, i)
        if got:
            second.append(f"state[{i * H}u + j] += {' + '.join(got)};")
    return [
        walk,
        *(f"  {line}" for line in first),
        "}",
        "workgroupBarrier();",
        walk,
        *(f"  {line}" for line in second),
        "}",
        "workgroupBarrier();",
    ]
