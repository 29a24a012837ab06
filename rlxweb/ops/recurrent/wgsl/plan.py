"""Kernel plans of the steps of a recurrent network.

The gates of all steps have come from one product before. What is left is serial: a step
is the product of the state with the recurrent weights and the cell's arithmetic. Two
ways: a dispatch for every step, an invocation for every unit (any device, no workgroup
memory), or a workgroup for every row that keeps its state to itself over many steps.
Results lie as [T + parts, D, B, H]: what is shown of every step, h or c, then the last
h, then the last c.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rlxweb.core.limits import MAX_LOOP_ITERATIONS, Limits
from rlxweb.ir.dtype import DType
from rlxweb.ir.lowering import (
    TRANSPOSED_ATTR,
    BufferRef,
    IterationAxis,
    KernelDispatch,
    KernelPlan,
    OperandAccess,
    ScratchBuffer,
)
from rlxweb.ir.op import TensorType, Types
from rlxweb.ops.kernel_variant import KernelVariant
from rlxweb.ops.recurrent.wgsl.cell import (
    GATE_COUNTS,
    GRU_BLEND_WGSL,
    RecurrentKind,
    RecurrentNetwork,
    activation_includes,
    activations_wgsl,
    cell_wgsl,
    recurrent_network,
    sequence_state_wgsl,
    state_range_wgsl,
    state_read_wgsl,
)

MAX_LANES = 256
MAIN = """@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }"""


def copy_or_zero_dispatch(
    source: BufferRef | None, target: BufferRef, count: int, offset: int = 0
) -> KernelDispatch:
    """Return the dispatch that copies a run of elements to an offset, or fills it with
    zeros.
    """
    axes = (IterationAxis("n", count),)
    write = OperandAccess(target, (1,), "write", offset)
    reads = () if source is None else (OperandAccess(source, (1,)),)
    statement = "st0(item, 0.0);" if source is None else "st1(item, ld0(item));"
    return KernelDispatch(
        "recurrent_state",
        axes=axes,
        accesses=(*reads, write),
        grid=(("n", 1),),
        source=f"{MAIN}\n  {statement}\n}}",
    )


def _initial_state_dispatches(
    net: RecurrentNetwork, state: BufferRef
) -> list[KernelDispatch]:
    state_size = net.D * net.B * net.H
    if net.state_input is None:
        return [copy_or_zero_dispatch(None, state, net.state_count * state_size)]
    return [
        copy_or_zero_dispatch(
            BufferRef("in", net.state_input + part),
            state,
            state_size,
            part * state_size,
        )
        for part in range(net.state_count)
    ]


def _final_state_dispatch(net: RecurrentNetwork, state: BufferRef) -> KernelDispatch:
    state_size = net.D * net.B * net.H
    return copy_or_zero_dispatch(
        state, BufferRef("out"), net.state_count * state_size, net.T * state_size
    )


def _weight_strides(
    net: RecurrentNetwork, has_transposed_weights: bool
) -> tuple[int, int, int]:
    """Return the strides of the weights over (unit, k, gate)."""
    H = net.H
    return (H, 1, H * H) if has_transposed_weights else (1, net.gate_count * H, H)


def _operands(
    net: RecurrentNetwork, d: int, has_transposed_weights: bool
) -> tuple[OperandAccess, list[OperandAccess]]:
    """Return the access to the weights, and those to the other operands of a row: the
    extra one, its length.

    Over (row, time, unit, k, gate, part, extra).
    """
    H = net.H
    weights = OperandAccess(
        BufferRef("in", 1),
        (0, 0, *_weight_strides(net, has_transposed_weights), 0, 0),
        offset=d * net.gate_count * H * H,
    )
    other_accesses = []
    if net.extra_input is not None:
        strides = (0, 0, 1, 0, 0, 0, H)
        other_accesses.append(
            OperandAccess(
                BufferRef("in", net.extra_input),
                strides,
                offset=d * net.extra_count * H,
            )
        )
    if net.lengths_input is not None:
        other_accesses.append(
            OperandAccess(BufferRef("in", net.lengths_input), (1, 0, 0, 0, 0, 0, 0))
        )
    return weights, other_accesses


def _axes(
    net: RecurrentNetwork, steps: int, is_parallel: bool
) -> tuple[IterationAxis, ...]:
    return (
        IterationAxis("row", net.B),
        IterationAxis("time", steps, "whole"),
        IterationAxis("unit", net.H, "parallel" if is_parallel else "whole"),
        IterationAxis("k", net.H, "whole"),
        IterationAxis("gate", net.gate_count, "whole"),
        IterationAxis("part", net.state_count, "whole"),
        IterationAxis("extra", net.extra_count, "whole"),
    )


def _uniforms(
    net: RecurrentNetwork, has_transposed_weights: bool
) -> dict[str, int | float]:
    unit, k, gate = _weight_strides(net, has_transposed_weights)
    state_size, step_row_size = net.D * net.B * net.H, net.D * net.gate_count * net.H
    return {
        "size": net.H,
        "x_row": step_row_size,
        "x_time": net.B * step_row_size,
        "w_unit": unit,
        "w_k": k,
        "w_gate": gate,
        "y_time": state_size,
        "s_part": state_size,
    }


def _live_lines(net: RecurrentNetwork, time: str) -> list[str]:
    """Declare whether the row has not ended at this time."""
    if net.lengths_input is None:
        return []
    access_index = 4 + (net.extra_input is not None)
    return [f"let live = {time} < u32(max(ld{access_index}(row), 0));"]


def _select_live(net: RecurrentNetwork, name: str, old: str) -> str:
    """Return the new value, or the old one after the row's end."""
    return name if net.lengths_input is None else f"select({old}, {name}, live)"


def _accumulate_lines(
    net: RecurrentNetwork, gates: range, state: str, product: str = ""
) -> list[str]:
    """Add the products of the state to the gates' sums; the sum of gate 2 is called
    `product` if given.
    """
    names = [product if product and g == 2 else f"a{g}" for g in gates]
    lines = [
        "for (var k = 0u; k < u.k; k++) {",
        f"  let v = {state_read_wgsl(net, state)};",
    ]
    lines.append("  let w = k * u.w_k + j * u.w_unit;")
    for g, name in zip(gates, names, strict=True):
        index = f"w + {g}u * u.w_gate" if g else "w"
        lines.append(f"  {name} = fma(v, ld1({index}), {name});")
    return [*lines, "}"]


def _gate_inputs(net: RecurrentNetwork) -> list[str]:
    return [
        f"var a{g} = ld0(x + j{f' + {g}u * u.size' if g else ''});"
        for g in range(net.gate_count)
    ]


# --- a dispatch for every step ------------------------------------------------------


def plan_recurrent_steps(
    kind: RecurrentKind, inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan | None:
    """Plan one dispatch per step, with the state alternating between two scratch
    buffers.

    None for a GRU whose second product waits for the first, and for other types than
    f32: the decomposition takes them.
    """
    net = recurrent_network(kind, inputs, attrs)
    if out.dtype is not DType.F32 or (kind == "gru" and not net.reset_after_product):
        return None
    has_transposed_weights = attrs.get(TRANSPOSED_ATTR, (False, False))[1]
    state_buffers = (BufferRef("scratch", 0), BufferRef("scratch", 1))
    dispatches = _initial_state_dispatches(net, state_buffers[0])
    for s in range(net.T):
        old, new = state_buffers[s % 2], state_buffers[(s + 1) % 2]
        for d in range(net.D):
            dispatches.append(
                _step_dispatch(
                    net, d, net.time_steps(d)[s], has_transposed_weights, old, new
                )
            )
    dispatches.append(_final_state_dispatch(net, state_buffers[net.T % 2]))
    state_size = net.D * net.B * net.H
    return KernelPlan(
        tuple(dispatches), (ScratchBuffer(net.state_count * state_size),) * 2
    )


def _step_dispatch(
    net: RecurrentNetwork,
    d: int,
    t: int,
    has_transposed_weights: bool,
    old: BufferRef,
    new: BufferRef,
) -> KernelDispatch:
    """Return the dispatch of step t of direction d, from the old state to the new."""
    state_size, N = net.D * net.B * net.H, net.D * net.gate_count * net.H
    offset = d * net.B * net.H
    weights, other_accesses = _operands(net, d, has_transposed_weights)
    has_lengths = net.lengths_input is not None
    return KernelDispatch(
        f"{net.kind}_step",
        axes=_axes(net, 1, True),
        accesses=(
            OperandAccess(
                BufferRef("in", 0),
                (N, 0, 1, 0, net.H, 0, 0),
                offset=t * net.B * N + d * net.gate_count * net.H,
            ),
            weights,
            OperandAccess(old, (net.H, 0, 0, 1, 0, state_size, 0), offset=offset),
            OperandAccess(
                new, (net.H, 0, 1, 0, 0, state_size, 0), "write", offset=offset
            ),
            *other_accesses,
            OperandAccess(
                BufferRef("out"),
                (net.H, 0, 1, 0, 0, 0, 0),
                "write",
                t * state_size + offset,
            ),
        ),
        grid=(("row", 1), ("unit", 1)),
        uniforms=_uniforms(net, has_transposed_weights)
        | ({"time_at": t} if has_lengths else {}),
        uses=activation_includes(net, d),
        source=_step_source(net, d),
        iterations=(1.0 + net.quantizes_state)
        / (net.gate_count * net.state_count * net.extra_count),
    )


def _step_source(net: RecurrentNetwork, d: int) -> str:
    output_index = 4 + (net.extra_input is not None) + (net.lengths_input is not None)
    load = "ld4({gate} * u.size + j)"
    lines = [
        "let j = item % u.unit;",
        "let row = item / u.unit;",
        "let x = row * u.x_row;",
        *_live_lines(net, "u.time_at"),
        *_gate_inputs(net),
        "let line = row * u.size;",
        *(["var m = 0.0;"] if net.reset_after_product else []),
        *state_range_wgsl(net, "ld2(line + k)"),
        *_accumulate_lines(
            net,
            range(net.gate_count),
            "ld2(line + k)",
            "m" if net.reset_after_product else "",
        ),
        "let own = line + u.at_unit + j;",
        "let h = ld2(own);",
        *(["let c = ld2(u.s_part + own);"] if net.state_count == 2 else []),
        *cell_wgsl(net, load),
        "let to = row * u.size + j;",
        f"st3(to, {_select_live(net, 'next_h', 'h')});",
    ]
    if net.state_count == 2:
        lines.append(f"st3(u.s_part + to, {_select_live(net, 'next_c', 'c')});")
    lines.append(
        f"st{output_index}(to, {_select_live(net, sequence_state_wgsl(net), '0.0')});"
    )
    body = [f"  {line}" for line in lines]
    return "\n".join([*activations_wgsl(net, d), MAIN, *body, "}"])


# --- a workgroup for every row ------------------------------------------------------


def plan_recurrent_rows(
    kind: RecurrentKind,
    inputs: Types,
    out: TensorType,
    attrs: Mapping[str, Any],
    limits: Limits,
) -> KernelPlan | None:
    """Plan a workgroup per row, over as many steps as loops and bindings allow.

    None where a row's state does not fit workgroup memory, and for other types.
    """
    net = recurrent_network(kind, inputs, attrs)
    if out.dtype is not DType.F32 or not net.H:
        return None
    has_transposed_weights = attrs.get(TRANSPOSED_ATTR, (False, False))[1]
    lanes = min(
        MAX_LANES, 1 << (net.H - 1).bit_length(), limits.max_linear_workgroup_size
    )
    lanes = 1 << (lanes.bit_length() - 1)
    # The last look at a loop's end counts as a turn of it.
    iterations = (
        -(-net.H // lanes) * (net.H + 4) * (1 + _has_dependent_product(net)) + 8
    )
    iterations += (net.H + 4) * net.quantizes_state
    max_elements = (
        min(limits.max_storage_buffer_binding_size, limits.max_buffer_size) // 4
    )
    step_elements = net.B * net.D * net.gate_count * net.H
    chunk = max(
        1,
        min(
            net.T,
            MAX_LOOP_ITERATIONS // iterations,
            (max_elements - 128) // max(1, step_elements),
        ),
    )
    fits = iterations <= MAX_LOOP_ITERATIONS
    if not fits or 4 * _shared_floats(net) > limits.max_compute_workgroup_storage_size:
        return None
    state = BufferRef("scratch", 0)
    dispatches = _initial_state_dispatches(net, state)
    for d in range(net.D):
        starts = list(range(0, net.T, chunk))
        for first_step in reversed(starts) if net.is_reversed(d) else starts:
            steps = min(chunk, net.T - first_step)
            dispatches.append(
                _rows_dispatch(
                    net, d, first_step, steps, has_transposed_weights, lanes, iterations
                )
            )
    dispatches.append(_final_state_dispatch(net, state))
    return KernelPlan(
        tuple(dispatches), (ScratchBuffer(net.state_count * net.D * net.B * net.H),)
    )


def _has_dependent_product(net: RecurrentNetwork) -> bool:
    """Return whether the second product of a step depends on the result of the
    first.
    """
    return net.kind == "gru" and not net.reset_after_product


def _shared_floats(net: RecurrentNetwork) -> int:
    """Return the floats of workgroup memory: the state twice, c or z, and r · h."""
    return (2 + (net.kind == "lstm") + 2 * _has_dependent_product(net)) * net.H


def _rows_dispatch(
    net: RecurrentNetwork,
    d: int,
    first_step: int,
    steps: int,
    has_transposed_weights: bool,
    lanes: int,
    iterations: int,
) -> KernelDispatch:
    state_size, N = net.D * net.B * net.H, net.D * net.gate_count * net.H
    offset = d * net.B * net.H
    weights, other_accesses = _operands(net, d, has_transposed_weights)
    box_size = (
        steps * net.H * net.H * net.gate_count * net.state_count * net.extra_count
    )
    has_lengths = net.lengths_input is not None
    return KernelDispatch(
        f"{net.kind}_rows",
        axes=_axes(net, steps, False),
        accesses=(
            OperandAccess(
                BufferRef("in", 0),
                (N, net.B * N, 1, 0, net.H, 0, 0),
                offset=first_step * net.B * N + d * net.gate_count * net.H,
            ),
            weights,
            OperandAccess(
                BufferRef("scratch", 0),
                (net.H, 0, 1, 0, 0, state_size, 0),
                "update",
                offset=offset,
            ),
            OperandAccess(
                BufferRef("out"),
                (net.H, state_size, 1, 0, 0, 0, 0),
                "write",
                first_step * state_size + offset,
            ),
            *other_accesses,
        ),
        grid=(("row", 1),),
        item_unit="workgroup",
        workgroup_size=lanes,
        uniforms=_uniforms(net, has_transposed_weights)
        | ({"time_at": first_step} if has_lengths else {}),
        uses=activation_includes(net, d),
        source=_rows_source(net, d),
        shared_bytes=4 * _shared_floats(net),
        iterations=steps * iterations / max(1, box_size),
    )


def _rows_source(net: RecurrentNetwork, d: int) -> str:
    H, is_lstm = net.H, net.kind == "lstm"
    declarations = [f"var<workgroup> hidden: array<f32, {2 * H}>;"]
    declarations += [f"var<workgroup> cell: array<f32, {H}>;"] if is_lstm else []
    if _has_dependent_product(net):
        declarations.append(f"var<workgroup> blend: array<f32, {H}>;")
        declarations.append(f"var<workgroup> reset: array<f32, {H}>;")
    t = "u.time - 1u - s" if net.is_reversed(d) else "s"
    lines = [
        "let row = item;",
        "let own = row * u.size;",
        f"for (var j = lid; j < {H}u; j += WG) {{",
        "  hidden[j] = ld2(own + j);",
        *(["  cell[j] = ld2(u.s_part + own + j);"] if is_lstm else []),
        "}",
        "for (var s = 0u; s < u.time; s++) {",
        "  workgroupBarrier();",
        f"  let t = {t};",
        f"  let before = (s & 1u) * {H}u;",
        f"  let after = {H}u - before;",
        "  let x = row * u.x_row + t * u.x_time;",
        *(f"  {line}" for line in _live_lines(net, "u.time_at + t")),
        *(f"  {line}" for line in _step_phases(net)),
        "}",
        "workgroupBarrier();",
        f"let last = (u.time & 1u) * {H}u;",
        f"for (var j = lid; j < {H}u; j += WG) {{",
        "  st2(own + j, hidden[last + j]);",
        *(["  st2(u.s_part + own + j, cell[j]);"] if is_lstm else []),
        "}",
    ]
    body = [f"  {line}" for line in lines]
    return "\n".join([*declarations, *activations_wgsl(net, d), MAIN, *body, "}"])


def _step_phases(net: RecurrentNetwork) -> list[str]:
    """Return one step of all units, in two phases with a barrier between if one product
    depends on the other.
    """
    loop_header = f"for (var j = lid; j < {net.H}u; j += WG) {{"
    state, load = "hidden[before + k]", "ld4({gate} * u.size + j)"
    store_lines = [
        "let y = row * u.size + t * u.y_time + j;",
        f"hidden[after + j] = {_select_live(net, 'next_h', 'h')};",
        *(
            [f"cell[j] = {_select_live(net, 'next_c', 'c')};"]
            if net.kind == "lstm"
            else []
        ),
        f"st3(y, {_select_live(net, sequence_state_wgsl(net), '0.0')});",
    ]
    h = "let h = hidden[before + j];"
    if not _has_dependent_product(net):
        lines = [
            *_gate_inputs(net),
            *(["var m = 0.0;"] if net.reset_after_product else []),
            *_accumulate_lines(
                net,
                range(net.gate_count),
                state,
                "m" if net.reset_after_product else "",
            ),
            h,
            *(["let c = cell[j];"] if net.kind == "lstm" else []),
            *cell_wgsl(net, load),
            *store_lines,
        ]
        range_lines = state_range_wgsl(net, state)
        return [*range_lines, loop_header, *(f"  {line}" for line in lines), "}"]
    first = [
        *_gate_inputs(net)[:2],
        *_accumulate_lines(net, range(2), state),
        "blend[j] = f0(a0);",
        "reset[j] = f0(a1) * hidden[before + j];",
    ]
    second = [
        _gate_inputs(net)[2],
        *_accumulate_lines(net, range(2, 3), "reset[k]"),
        h,
        "let z = blend[j];",
        "let n = f1(a2);",
        GRU_BLEND_WGSL,
        *store_lines,
    ]
    return [
        loop_header,
        *(f"  {line}" for line in first),
        "}",
        "workgroupBarrier();",
        loop_header,
        *(f"  {line}" for line in second),
        "}",
    ]


KERNELS = tuple(
    KernelVariant(f"{kind}, workgroup a row", kind, partial(plan_recurrent_rows, kind))
    for kind in GATE_COUNTS
)
