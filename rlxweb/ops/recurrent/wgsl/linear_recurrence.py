"""Kernel plans of a linear recurrence whose steps mix channels by matrix products.

Two ways, as of a recurrent network: a dispatch for every step, an invocation for every
channel (any device), or a workgroup for every row that keeps the state to itself over
many steps. A step is M (x + s), of which x + s is stored: M mixes the parts of a
channel's state by coefficients, and the channels by weights that coefficients scale
before the product (transposed) or behind it. Pure arithmetic; knows no op's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from rlxweb.ops.recurrent.wgsl.plan import MAIN, MAX_LANES, copy_or_zero_dispatch


@dataclass(frozen=True, slots=True)
class LinearRecurrenceSpec:
    """Sizes of a linear recurrence: T steps of B rows of H channels with m numbers
    each; G products a step.
    """

    T: int
    B: int
    m: int
    H: int
    G: int
    reverse: bool
    transposed: bool
    has_transposed_weights: bool

    @property
    def state_size(self) -> int:
        """Number of elements of the state of all rows."""
        return self.B * self.m * self.H

    @property
    def coefficient_count(self) -> int:
        """Number of coefficients of a channel: those of its own state, then those of
        the products.
        """
        return self.m * self.m + self.G * self.m

    @property
    def time_order(self) -> range:
        """Time steps in the order of computation."""
        return range(self.T)[:: -1 if self.reverse else 1]

    def weight_strides(self) -> tuple[int, int, int]:
        """Return the strides of the weights over channel, term and gate."""
        H, G = self.H, self.G
        row, column, gate = (
            (1, H, H * H) if self.has_transposed_weights else (G * H, 1, H)
        )
        return (row, column, gate) if self.transposed else (column, row, gate)

    def own_state_terms(self, coefficient: str, values: str) -> list[str]:
        """Return the expression of each part of a channel's next state without the
        other channels.
        """
        expressions = []
        for i in range(self.m):
            terms = []
            for q in range(self.m):
                index = q * self.m + i if self.transposed else i * self.m + q
                terms.append(f"{coefficient.format(index)} * {values}{q}")
            expressions.append(" + ".join(terms))
        return expressions

    def gate_coefficient(self, coefficient: str, k: int, i: int) -> str:
        """Return the coefficient of gate k and part i."""
        return coefficient.format(self.m * self.m + k * self.m + i)


def linear_recurrence_spec(
    inputs: Types, attrs: Mapping[str, Any]
) -> LinearRecurrenceSpec:
    """Return the recurrence that checked operands and attributes describe."""
    T, B, m, H = inputs[0].shape
    G = inputs[2].shape[1] // H if H else 1
    has_transposed_weights = attrs.get(TRANSPOSED_ATTR, (False,) * 3)[2]
    return LinearRecurrenceSpec(
        T, B, m, H, G, attrs["reverse"], attrs["transposed"], has_transposed_weights
    )


def _axes(
    spec: LinearRecurrenceSpec, steps: int, is_parallel: bool
) -> tuple[IterationAxis, ...]:
    return (
        IterationAxis("row", spec.B),
        IterationAxis("time", steps, "whole"),
        IterationAxis("unit", spec.H, "parallel" if is_parallel else "whole"),
        IterationAxis("k", spec.H, "whole"),
        IterationAxis("gate", spec.G, "whole"),
        IterationAxis("part", spec.m, "whole"),
        IterationAxis("coef", spec.coefficient_count, "whole"),
    )


def _accesses(
    spec: LinearRecurrenceSpec, first_step: int, is_parallel: bool
) -> tuple[OperandAccess, ...]:
    """Return the accesses to x, coefficients and weights; where other channels are read
    too, to a whole row.
    """
    H, m, N = spec.H, spec.m, spec.coefficient_count
    unit, k, gate = spec.weight_strides()
    unit_stride = 0 if is_parallel else 1
    other_stride = 1 if is_parallel else 0
    return (
        OperandAccess(
            BufferRef("in", 0),
            (m * H, spec.state_size, unit_stride, other_stride, 0, H, 0),
            offset=first_step * spec.state_size,
        ),
        OperandAccess(
            BufferRef("in", 1),
            (N * H, spec.B * N * H, unit_stride, other_stride, 0, 0, H),
            offset=first_step * spec.B * N * H,
        ),
        OperandAccess(BufferRef("in", 2), (0, 0, unit, k, gate, 0, 0)),
    )


def _uniforms(spec: LinearRecurrenceSpec) -> dict[str, int | float]:
    unit, k, gate = spec.weight_strides()
    return {
        "size": spec.H,
        "s_row": spec.m * spec.H,
        "c_row": spec.coefficient_count * spec.H,
        "x_time": spec.state_size,
        "c_time": spec.B * spec.coefficient_count * spec.H,
        "w_unit": unit,
        "w_k": k,
        "w_gate": gate,
    }


def _state_copies(
    spec: LinearRecurrenceSpec, state: BufferRef
) -> tuple[KernelDispatch, KernelDispatch]:
    """Return the dispatches that copy the initial state in and the final state out."""
    first = copy_or_zero_dispatch(
        BufferRef("in", 3), BufferRef("scratch", 0), spec.state_size
    )
    return first, copy_or_zero_dispatch(
        state, BufferRef("out"), spec.state_size, spec.T * spec.state_size
    )


# --- a dispatch for every step ------------------------------------------------------


def plan_linear_steps(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any]
) -> KernelPlan | None:
    """Plan one dispatch per step, with the state alternating between two scratch
    buffers. None for types other than f32.
    """
    spec = linear_recurrence_spec(inputs, attrs)
    if out.dtype is not DType.F32:
        return None
    state_buffers = (BufferRef("scratch", 0), BufferRef("scratch", 1))
    first, last = _state_copies(spec, state_buffers[spec.T % 2])
    steps = [
        _step_dispatch(spec, t, state_buffers[s % 2], state_buffers[(s + 1) % 2])
        for s, t in enumerate(spec.time_order)
    ]
    return KernelPlan((first, *steps, last), (ScratchBuffer(spec.state_size),) * 2)


def _step_dispatch(
    spec: LinearRecurrenceSpec, t: int, old: BufferRef, new: BufferRef
) -> KernelDispatch:
    H, m = spec.H, spec.m
    return KernelDispatch(
        "linear_step",
        axes=_axes(spec, 1, True),
        accesses=(
            *_accesses(spec, t, True),
            OperandAccess(old, (m * H, 0, 0, 1, 0, H, 0)),
            OperandAccess(new, (m * H, 0, 1, 0, 0, H, 0), "write"),
            OperandAccess(
                BufferRef("out"),
                (m * H, 0, 1, 0, 0, H, 0),
                "write",
                offset=t * spec.state_size,
            ),
        ),
        grid=(("row", 1), ("unit", 1)),
        uniforms=_uniforms(spec),
        source=_step_source(spec),
        iterations=1.0 / (spec.G * m * spec.coefficient_count),
    )


def _step_source(spec: LinearRecurrenceSpec) -> str:
    """Return the WGSL of a step; every channel recomputes the products of the others
    that it needs.
    """
    m, G = spec.m, spec.G
    coefficient = "ld1(mixed + {}u * u.size + own)"
    lines = [
        "let j = item % u.unit;",
        "let row = item / u.unit;",
        "let own = u.at_unit + j;",
        "let line = row * u.s_row;",
        "let mixed = row * u.c_row;",
        "let to = line + j;",
    ]
    for i in range(m):
        index = f"line + {i}u * u.size + own"
        lines.append(f"let p{i} = ld0({index}) + ld3({index});")
        lines.append(f"st5(to + {i}u * u.size, p{i});")
    lines += [f"var a{k} = 0.0;" for k in range(G)]
    lines.append("for (var k = 0u; k < u.k; k++) {")
    lines.append("  let w = k * u.w_k + j * u.w_unit;")
    parts = range(m) if spec.transposed else range(1)
    for i in parts:
        index = f"line + {i}u * u.size + k"
        lines.append(f"  let v{i} = ld0({index}) + ld3({index});")
    for k in range(G):
        sent = "v0"
        if spec.transposed:
            coefficient_of_k = coefficient.replace("own", "k")
            sent = " + ".join(
                f"{spec.gate_coefficient(coefficient_of_k, k, i)} * v{i}"
                for i in range(m)
            )
        lines.append(f"  a{k} = fma({sent}, ld2(w + {k}u * u.w_gate), a{k});")
    lines.append("}")
    for i, own_terms in enumerate(spec.own_state_terms(coefficient, "p")):
        terms = [own_terms, *_gate_terms(spec, coefficient, i)]
        lines.append(f"st4(to + {i}u * u.size, {' + '.join(terms)});")
    return "\n".join([MAIN, *(f"  {line}" for line in lines), "}"])


def _gate_terms(spec: LinearRecurrenceSpec, coefficient: str, i: int) -> list[str]:
    """Return the terms of products a0, a1, … in part i of a channel's state."""
    if spec.transposed:
        return [f"a{k}" for k in range(spec.G)] if i == 0 else []
    return [f"{spec.gate_coefficient(coefficient, k, i)} * a{k}" for k in range(spec.G)]


# --- a workgroup for every row ------------------------------------------------------


def plan_linear_rows(
    inputs: Types, out: TensorType, attrs: Mapping[str, Any], limits: Limits
) -> KernelPlan | None:
    """Plan a workgroup per row, with as many steps per dispatch as loops and bindings
    allow.

    None where a row's state does not fit workgroup memory, and for other types.
    """
    spec = linear_recurrence_spec(inputs, attrs)
    if out.dtype is not DType.F32 or not spec.H:
        return None
    lanes = min(
        MAX_LANES, 1 << (spec.H - 1).bit_length(), limits.max_linear_workgroup_size
    )
    lanes = 1 << (lanes.bit_length() - 1)
    # The last look at a loop's end counts as a turn of it.
    iterations = -(-spec.H // lanes) * (spec.H + 4) + 8
    max_elements = (
        min(limits.max_storage_buffer_binding_size, limits.max_buffer_size) // 4
    )
    step_elements = spec.B * spec.coefficient_count * spec.H
    chunk = max(
        1,
        min(
            spec.T,
            MAX_LOOP_ITERATIONS // iterations,
            (max_elements - 128) // max(1, step_elements),
        ),
    )
    shared_bytes = 4 * _shared_floats(spec)
    if (
        iterations > MAX_LOOP_ITERATIONS
        or shared_bytes > limits.max_compute_workgroup_storage_size
    ):
        return None
    first, last = _state_copies(spec, BufferRef("scratch", 0))
    starts = list(range(0, spec.T, chunk))
    dispatches = [
        _rows_dispatch(spec, start, min(chunk, spec.T - start), lanes, iterations)
        for start in (reversed(starts) if spec.reverse else starts)
    ]
    return KernelPlan((first, *dispatches, last), (ScratchBuffer(spec.state_size),))


def _shared_floats(spec: LinearRecurrenceSpec) -> int:
    """Return the floats of workgroup memory: the state, and the values sent to other
    channels.
    """
    return (spec.m + (spec.G if spec.transposed else 1)) * spec.H


def _rows_dispatch(
    spec: LinearRecurrenceSpec, first_step: int, steps: int, lanes: int, iterations: int
) -> KernelDispatch:
    H, m = spec.H, spec.m
    box_size = steps * H * H * spec.G * m * spec.coefficient_count
    return KernelDispatch(
        "linear_rows",
        axes=_axes(spec, steps, False),
        accesses=(
            *_accesses(spec, first_step, False),
            OperandAccess(BufferRef("scratch", 0), (m * H, 0, 1, 0, 0, H, 0), "update"),
            OperandAccess(
                BufferRef("out"),
                (m * H, spec.state_size, 1, 0, 0, H, 0),
                "write",
                offset=first_step * spec.state_size,
            ),
        ),
        grid=(("row", 1),),
        item_unit="workgroup",
        workgroup_size=lanes,
        uniforms=_uniforms(spec),
        source=_rows_source(spec),
        shared_bytes=4 * _shared_floats(spec),
        iterations=steps * iterations / max(1, box_size),
    )


def _rows_source(spec: LinearRecurrenceSpec) -> str:
    H, m, G = spec.H, spec.m, spec.G
    loop_header = f"for (var j = lid; j < {H}u; j += WG) {{"
    sent_per_channel = G if spec.transposed else 1
    t = "u.time - 1u - s" if spec.reverse else "s"
    lines = [
        "let row = item;",
        "let line = row * u.s_row;",
        loop_header,
        *(f"  state[{i * H}u + j] = ld3(line + {i}u * u.size + j);" for i in range(m)),
        "}",
        "for (var s = 0u; s < u.time; s++) {",
        f"  let t = {t};",
        "  let x = line + t * u.x_time;",
        "  let mixed = row * u.c_row + t * u.c_time;",
        *(f"  {line}" for line in _step_phases(spec, loop_header)),
        "}",
        loop_header,
        *(f"  st3(line + {i}u * u.size + j, state[{i * H}u + j]);" for i in range(m)),
        "}",
    ]
    declarations = [
        f"var<workgroup> state: array<f32, {m * H}>;",
        f"var<workgroup> sent: array<f32, {sent_per_channel * H}>;",
    ]
    return "\n".join([*declarations, MAIN, *(f"  {line}" for line in lines), "}"])


def _step_phases(spec: LinearRecurrenceSpec, loop_header: str) -> list[str]:
    """Return one step in two phases: each channel updates and sends its state, then
    receives from the others.

    A lane has the same channels in both, so only what is sent waits at the barriers.
    """
    H, m, G = spec.H, spec.m, spec.G
    coefficient = "ld1(mixed + {}u * u.size + j)"
    first = []
    for i in range(m):
        first.append(f"let p{i} = ld0(x + {i}u * u.size + j) + state[{i * H}u + j];")
        first.append(f"st4(x + {i}u * u.size + j, p{i});")
    for i, own_terms in enumerate(spec.own_state_terms(coefficient, "p")):
        first.append(f"state[{i * H}u + j] = {own_terms};")
    if spec.transposed:
        for k in range(G):
            terms = (
                f"{spec.gate_coefficient(coefficient, k, i)} * p{i}" for i in range(m)
            )
            first.append(f"sent[{k * H}u + j] = {' + '.join(terms)};")
    else:
        first.append("sent[j] = p0;")
    second = [f"var a{k} = 0.0;" for k in range(G)]
    second.append(f"for (var k = 0u; k < {H}u; k++) {{")
    second.append("  let w = k * u.w_k + j * u.w_unit;")
    for k in range(G):
        value = f"sent[{k * H}u + k]" if spec.transposed else "sent[k]"
        second.append(f"  a{k} = fma({value}, ld2(w + {k}u * u.w_gate), a{k});")
    second.append("}")
    for i in range(m):
        gate_terms = _gate_terms(spec, coefficient, i)
        if gate_terms:
            second.append(f"state[{i * H}u + j] += {' + '.join(gate_terms)};")
    return [
        loop_header,
        *(f"  {line}" for line in first),
        "}",
        "workgroupBarrier();",
        loop_header,
        *(f"  {line}" for line in second),
        "}",
        "workgroupBarrier();",
    ]


KERNELS = (
    KernelVariant(
        "linear_recurrence, workgroup a row", "linear_recurrence", plan_linear_rows
    ),
)
