"""NumPy on the CPU: always there, the embedded default and the definition of right.

Runs each step by the op's reference. Values are dropped as soon as no later step reads
them. Results never share memory with what the caller passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlxweb.backends.array import Reference, order_of_release
from rlxweb.backends.protocol import Array, Backend, Program, own
from rlxweb.backends.registry import CPU_ENGINE
from rlxweb.compile.plan import Plan
from rlxweb.compile.target import Target
from rlxweb.errors import GraphError
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.lowering import Leaf
from rlxweb.ir.op import Op, TensorType, registry


@dataclass(frozen=True, slots=True)
class _Call:
    """One node as a function call: what to call, on which values, to which."""

    node: Node
    function: Reference
    inputs: tuple[int, ...]
    drop: tuple[int, ...]


@dataclass(slots=True)
class CpuProgram(Program):
    """A plan as a flat list of calls."""

    plan: Plan
    calls: list[_Call]
    constants: dict[int, Array]
    params: dict[str, Array] = field(default_factory=dict)


def _native(
    op: Op, inputs: tuple[TensorType, ...], out: TensorType, attrs: Mapping[str, Any]
) -> bool:
    return True


class CpuBackend(Backend):
    """See `protocol.Backend`."""

    adapter, api, driver = CPU_ENGINE
    name = adapter
    target = Target(
        name="NumPy",
        dtypes=frozenset(DType),
        native=_native,
        max_operands=1 << 30,
        keeps_views=True,
        bool_bytes=1,
    )

    async def prepare(self, plan: Plan) -> CpuProgram:
        graph = plan.graph
        nodes = [graph.node(i) for step in plan.steps for i in step.nodes]
        keep = set(graph.outputs) | {
            n.id for n in graph.nodes() if isinstance(registry.get(n.op).lower, Leaf)
        }
        drops = order_of_release([n.inputs for n in nodes], keep)
        calls = [
            _Call(node, registry.get(node.op).reference, node.inputs, tuple(drop))
            for node, drop in zip(nodes, drops, strict=True)
        ]
        constants = {
            n.id: n.attrs["value"].array for n in graph.nodes() if n.op == "constant"
        }
        return CpuProgram(plan, calls, constants)

    async def set_param(self, program: Program, name: str, value: Array) -> None:
        own(CpuProgram, program).params[name] = np.array(value)

    async def run(self, program: Program, feeds: Mapping[str, Array]) -> list[Array]:
        program = own(CpuProgram, program)
        graph = program.plan.graph
        values: dict[int, Array] = dict(program.constants)
        given = {**feeds, **program.params}
        for name, node in (graph.named("input") | graph.named("param")).items():
            values[node.id] = given[name]
        with np.errstate(all="ignore"):
            for call in program.calls:
                arrays = [values[i] for i in call.inputs]
                made = call.function(np, call.node.attrs, *arrays)
                values[call.node.id] = _checked(call.node, made)
                for at in call.drop:
                    values.pop(at, None)
        outs: list[Array] = []
        for i in graph.outputs:
            others = [*given.values(), *program.constants.values(), *outs]
            outs.append(_own(values[i], others))
        return outs

    async def release(self, program: Program) -> None:
        program = own(CpuProgram, program)
        program.calls.clear()
        program.constants.clear()
        program.params.clear()


def _checked(node: Node, made: Any) -> Array:
    """The array, or GraphError when a reference breaks its own shape rule."""
    array = np.asarray(made)
    want = node.type
    if array.dtype != want.dtype.numpy or array.shape != want.shape:
        raise GraphError(
            str(node),
            f"its reference returned {list(array.shape)} {array.dtype}",
            f"its shape rule says {want}",
            "mend the op's record",
        )
    return array


def _own(array: Array, others: Sequence[Array]) -> Array:
    """The array itself, or a copy when its memory is not the caller's to write."""
    plain = array.flags.c_contiguous and array.flags.writeable
    if not plain or any(np.may_share_memory(array, o) for o in others):
        return array.copy(order="C")
    return array
