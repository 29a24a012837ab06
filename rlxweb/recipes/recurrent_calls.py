"""How the steps of a recurrent network run on a device.

The gates of all steps have come from one product before. What is left is serial: a step
is the product of the state with the recurrent weights and the cell's arithmetic. Two
ways: a call for every step, an invocation for every unit (any device, no workgroup
memory), or a workgroup for every row that keeps its state to itself over many steps.
Results lie as [T + parts, D, B, H]: what is shown of every step, h or c, then the last
h, then the last c.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import TURNED, Access, Axis, Call, Recipe, Ref, Scratch
from rlxweb.ir.op import TensorType, Types
from rlxweb.limits import MAX_TURNS, Limits
from rlxweb.recipes.recurrent_cells import (
    BLENDED,
    Kind,
    Network,
    cell_text,
    functions_text,
    network,
    range_text,
    read_text,
    shown_text,
    uses_of,
)

MOST_LANES = 256
MAIN = """@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }"""


def moved_run(source: Ref | None, target: Ref, count: int, at: int = 0) -> Call:
    """A run of elements copied to offset `at`, or filled with zeros."""
    axes = (Axis("n", count),)
    write = Access(target, (1,), "write", at)
    reads = () if source is None else (Access(source, (1,)),)
    line = "st0(item, 0.0);" if source is None else "st1(item, ld0(item));"
    return Call(
        "recurrent_state",
        axes=axes,
        accesses=(*reads, write),
        grid=(("n", 1),),
        source=f"{MAIN}\n  {line}\n}}",
    )


def _first_state(net: Network, state: Ref) -> list[Call]:
    each = net.D * net.B * net.H
    if net.state is None:
        return [moved_run(None, state, net.parts * each)]
    return [
        moved_run(Ref("in", net.state + part), state, each, part * each)
        for part in range(net.parts)
    ]


def _last_state(net: Network, state: Ref) -> Call:
    each = net.D * net.B * net.H
    return moved_run(state, Ref("out"), net.parts * each, net.T * each)


def _weight_steps(net: Network, turned: bool) -> tuple[int, int, int]:
    """Elements from one weight to the next over (unit, k, gate)."""
    H = net.H
    return (H, 1, H * H) if turned else (1, net.gates * H, H)


def _operands(net: Network, d: int, turned: bool) -> tuple[Access, list[Access]]:
    """The weights, and what else a row reads: the extra operand, its length.

    Over (row, time, unit, k, gate, part, extra).
    """
    H = net.H
    weights = Access(
        Ref("in", 1),
        (0, 0, *_weight_steps(net, turned), 0, 0),
        offset=d * net.gates * H * H,
    )
    others = []
    if net.extra is not None:
        walk = (0, 0, 1, 0, 0, 0, H)
        others.append(Access(Ref("in", net.extra), walk, offset=d * net.extras * H))
    if net.lengths is not None:
        others.append(Access(Ref("in", net.lengths), (1, 0, 0, 0, 0, 0, 0)))
    return weights, others


def _axes(net: Network, steps: int, parallel: bool) -> tuple[Axis, ...]:
    return (
        Axis("row", net.B),
        Axis("time", steps, "whole"),
        Axis("unit", net.H, "parallel" if parallel else "whole"),
        Axis("k", net.H, "whole"),
        Axis("gate", net.gates, "whole"),
        Axis("part", net.parts, "whole"),
        Axis("extra", net.extras, "whole"),
    )


def _values(net: Network, turned: bool) -> dict[str, int | float]:
    unit, k, gate = _weight_steps(net, turned)
    each, wide = net.D * net.B * net.H, net.D * net.gates * net.H
    return {
        "size": net.H,
        "x_row": wide,
        "x_time": net.B * wide,
        "w_unit": unit,
        "w_k": k,
        "w_gate": gate,
        "y_time": each,
        "s_part": each,
    }


def _is_live(net: Network, time: str) -> list[str]:
    """Whether the row still goes on at this time."""
    if net.lengths is None:
        return []
    at = 4 + (net.extra is not None)
    return [f"let live = {time} < u32(max(ld{at}(row), 0));"]


def _kept(net: Network, name: str, old: str) -> str:
    """The new value, or the old one behind the row's end."""
    return name if net.lengths is None else f"select({old}, {name}, live)"


def _sums(net: Network, gates: range, state: str, product: str = "") -> list[str]:
    """Adds the products of the state to the gates' sums, `product` in place of a2."""
    names = [product if product and g == 2 else f"a{g}" for g in gates]
    lines = ["for (var k = 0u; k < u.k; k++) {", f"  let v = {read_text(net, state)};"]
    lines.append("  let w = k * u.w_k + j * u.w_unit;")
    for g, name in zip(gates, names, strict=True):
        at = f"w + {g}u * u.w_gate" if g else "w"
        lines.append(f"  {name} = fma(v, ld1({at}), {name});")
    return [*lines, "}"]


def _inputs(net: Network) -> list[str]:
    return [
        f"var a{g} = ld0(x + j{f' + {g}u * u.size' if g else ''});"
        for g in range(net.gates)
    ]


# --- a call for every step ----------------------------------------------------------


def step_recipe(
    kind: Kind, inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> Recipe | None:
    """A call for every step; the state goes to and fro between two temporaries.

    None for a GRU whose second product waits for the first, and for other types than
    f32: the composition takes them.
    """
    net = network(kind, inputs, attrs)
    if out.dtype is not DType.F32 or (kind == "gru" and not net.late):
        return None
    turned = attrs.get(TURNED, (False, False))[1]
    both = (Ref("scratch", 0), Ref("scratch", 1))
    calls = _first_state(net, both[0])
    for s in range(net.T):
        old, new = both[s % 2], both[(s + 1) % 2]
        for d in range(net.D):
            calls.append(_step(net, d, net.times(d)[s], turned, old, new))
    calls.append(_last_state(net, both[net.T % 2]))
    each = net.D * net.B * net.H
    return Recipe(tuple(calls), (Scratch(net.parts * each),) * 2)


def _step(net: Network, d: int, t: int, turned: bool, old: Ref, new: Ref) -> Call:
    """Step t of direction d, from the old state to the new."""
    each, N = net.D * net.B * net.H, net.D * net.gates * net.H
    at = d * net.B * net.H
    weights, others = _operands(net, d, turned)
    live = net.lengths is not None
    return Call(
        f"{net.kind}_step",
        axes=_axes(net, 1, True),
        accesses=(
            Access(
                Ref("in", 0),
                (N, 0, 1, 0, net.H, 0, 0),
                offset=t * net.B * N + d * net.gates * net.H,
            ),
            weights,
            Access(old, (net.H, 0, 0, 1, 0, each, 0), offset=at),
            Access(new, (net.H, 0, 1, 0, 0, each, 0), "write", offset=at),
            *others,
            Access(Ref("out"), (net.H, 0, 1, 0, 0, 0, 0), "write", t * each + at),
        ),
        grid=(("row", 1), ("unit", 1)),
        values=_values(net, turned) | ({"time_at": t} if live else {}),
        uses=uses_of(net, d),
        source=_step_text(net, d),
        turns=(1.0 + net.quantized) / (net.gates * net.parts * net.extras),
    )


def _step_text(net: Network, d: int) -> str:
    out = 4 + (net.extra is not None) + (net.lengths is not None)
    load = "ld4({gate} * u.size + j)"
    lines = [
        "let j = item % u.unit;",
        "let row = item / u.unit;",
        "let x = row * u.x_row;",
        *_is_live(net, "u.time_at"),
        *_inputs(net),
        "let line = row * u.size;",
        *(["var m = 0.0;"] if net.late else []),
        *range_text(net, "ld2(line + k)"),
        *_sums(net, range(net.gates), "ld2(line + k)", "m" if net.late else ""),
        "let own = line + u.at_unit + j;",
        "let h = ld2(own);",
        *(["let c = ld2(u.s_part + own);"] if net.parts == 2 else []),
        *cell_text(net, load),
        "let to = row * u.size + j;",
        f"st3(to, {_kept(net, 'next_h', 'h')});",
    ]
    if net.parts == 2:
        lines.append(f"st3(u.s_part + to, {_kept(net, 'next_c', 'c')});")
    lines.append(f"st{out}(to, {_kept(net, shown_text(net), '0.0')});")
    body = [f"  {line}" for line in lines]
    return "\n".join([*functions_text(net, d), MAIN, *body, "}"])


# --- a workgroup for every row ------------------------------------------------------


def row_recipe(
    kind: Kind, inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> Recipe | None:
    """A workgroup for every row, over as many steps as loops and bindings allow.

    None where a row's state does not fit workgroup memory, and for other types.
    """
    net = network(kind, inputs, attrs)
    if out.dtype is not DType.F32 or not net.H:
        return None
    turned = attrs.get(TURNED, (False, False))[1]
    lanes = min(MOST_LANES, 1 << (net.H - 1).bit_length(), limits.workgroup_lanes)
    lanes = 1 << (lanes.bit_length() - 1)
    # The last look at a loop's end counts as a turn of it.
    turns = -(-net.H // lanes) * (net.H + 4) * (1 + _waits(net)) + 8
    turns += (net.H + 4) * net.quantized
    most = min(limits.max_storage_buffer_binding_size, limits.max_buffer_size) // 4
    wide = net.B * net.D * net.gates * net.H
    chunk = max(1, min(net.T, MAX_TURNS // turns, (most - 128) // max(1, wide)))
    fits = turns <= MAX_TURNS
    if not fits or 4 * _cells(net) > limits.max_compute_workgroup_storage_size:
        return None
    state = Ref("scratch", 0)
    calls = _first_state(net, state)
    for d in range(net.D):
        starts = list(range(0, net.T, chunk))
        for first in reversed(starts) if net.is_reversed(d) else starts:
            steps = min(chunk, net.T - first)
            calls.append(_rows(net, d, first, steps, turned, lanes, turns))
    calls.append(_last_state(net, state))
    return Recipe(tuple(calls), (Scratch(net.parts * net.D * net.B * net.H),))


def _waits(net: Network) -> bool:
    """Whether the second product of a step is of what the first one gave."""
    return net.kind == "gru" and not net.late


def _cells(net: Network) -> int:
    """Floats of workgroup memory: the state twice, c or z, and r · h."""
    return (2 + (net.kind == "lstm") + 2 * _waits(net)) * net.H


def _rows(
    net: Network,
    d: int,
    first: int,
    steps: int,
    turned: bool,
    lanes: int,
    turns: int,
) -> Call:
    each, N = net.D * net.B * net.H, net.D * net.gates * net.H
    at = d * net.B * net.H
    weights, others = _operands(net, d, turned)
    around = steps * net.H * net.H * net.gates * net.parts * net.extras
    live = net.lengths is not None
    return Call(
        f"{net.kind}_rows",
        axes=_axes(net, steps, False),
        accesses=(
            Access(
                Ref("in", 0),
                (N, net.B * N, 1, 0, net.H, 0, 0),
                offset=first * net.B * N + d * net.gates * net.H,
            ),
            weights,
            Access(
                Ref("scratch", 0), (net.H, 0, 1, 0, 0, each, 0), "update", offset=at
            ),
            Access(
                Ref("out"), (net.H, each, 1, 0, 0, 0, 0), "write", first * each + at
            ),
            *others,
        ),
        grid=(("row", 1),),
        per="workgroup",
        workgroup=lanes,
        values=_values(net, turned) | ({"time_at": first} if live else {}),
        uses=uses_of(net, d),
        source=_rows_text(net, d),
        shared_bytes=4 * _cells(net),
        turns=steps * turns / max(1, around),
    )


def _rows_text(net: Network, d: int) -> str:
    H, lstm = net.H, net.kind == "lstm"
    rooms = [f"var<workgroup> hidden: array<f32, {2 * H}>;"]
    rooms += [f"var<workgroup> cell: array<f32, {H}>;"] if lstm else []
    if _waits(net):
        rooms.append(f"var<workgroup> blend: array<f32, {H}>;")
        rooms.append(f"var<workgroup> reset: array<f32, {H}>;")
    t = "u.time - 1u - s" if net.is_reversed(d) else "s"
    lines = [
        "let row = item;",
        "let own = row * u.size;",
        f"for (var j = lid; j < {H}u; j += WG) {{",
        "  hidden[j] = ld2(own + j);",
        *(["  cell[j] = ld2(u.s_part + own + j);"] if lstm else []),
        "}",
        "for (var s = 0u; s < u.time; s++) {",
        "  workgroupBarrier();",
        f"  let t = {t};",
        f"  let before = (s & 1u) * {H}u;",
        f"  let after = {H}u - before;",
        "  let x = row * u.x_row + t * u.x_time;",
        *(f"  {line}" for line in _is_live(net, "u.time_at + t")),
        *(f"  {line}" for line in _phases(net)),
        "}",
        "workgroupBarrier();",
        f"let last = (u.time & 1u) * {H}u;",
        f"for (var j = lid; j < {H}u; j += WG) {{",
        "  st2(own + j, hidden[last + j]);",
        *(["  st2(u.s_part + own + j, cell[j]);"] if lstm else []),
        "}",
    ]
    body = [f"  {line}" for line in lines]
    return "\n".join([*rooms, *functions_text(net, d), MAIN, *body, "}"])


def _phases(net: Network) -> list[str]:
    """One step of all units; two, with a barrier between, where a product waits."""
    walk = f"for (var j = lid; j < {net.H}u; j += WG) {{"
    state, load = "hidden[before + k]", "ld4({gate} * u.size + j)"
    ends = [
        "let y = row * u.size + t * u.y_time + j;",
        f"hidden[after + j] = {_kept(net, 'next_h', 'h')};",
        *([f"cell[j] = {_kept(net, 'next_c', 'c')};"] if net.kind == "lstm" else []),
        f"st3(y, {_kept(net, shown_text(net), '0.0')});",
    ]
    h = "let h = hidden[before + j];"
    if not _waits(net):
        lines = [
            *_inputs(net),
            *(["var m = 0.0;"] if net.late else []),
            *_sums(net, range(net.gates), state, "m" if net.late else ""),
            h,
            *(["let c = cell[j];"] if net.kind == "lstm" else []),
            *cell_text(net, load),
            *ends,
        ]
        ranged = range_text(net, state)
        return [*ranged, walk, *(f"  {line}" for line in lines), "}"]
    first = [
        *_inputs(net)[:2],
        *_sums(net, range(2), state),
        "blend[j] = f0(a0);",
        "reset[j] = f0(a1) * hidden[before + j];",
    ]
    second = [
        _inputs(net)[2],
        *_sums(net, range(2, 3), "reset[k]"),
        h,
        "let z = blend[j];",
        "let n = f1(a2);",
        BLENDED,
        *ends,
    ]
    return [
        walk,
        *(f"  {line}" for line in first),
        "}",
        "workgroupBarrier();",
        walk,
        *(f"  {line}" for line in second),
        "}",
    ]
