"""Code generation for the time steps of a recurrent network as one native function.

One row of one direction: its state stays in the nearest cache, and a step is the
product of that with the recurrent weights, with the cell's arithmetic on each block of
units as soon as its sums are there. The arithmetic is that of the shaders, read by
`codegen/wgsl_parser.py`.

A block is some vectors of units. The last one ends with the last unit: where units are
no multiple of a block it does some again, which is why a step's new state is written
beside the old one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rlxweb.codegen.elementwise_llvm import wgsl_library_for
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir
from rlxweb.codegen.wgsl_parser import WgslLibrary, parse_expression, parse_library
from rlxweb.codegen.wgsl_to_instructions import LoweredValue, TypedValue
from rlxweb.codegen.wgsl_to_llvm import LlvmLowering
from rlxweb.ops.recurrent.wgsl.cell import (
    GRU_BLEND_WGSL,
    RecurrentNetwork,
    activation_includes,
    activations_wgsl,
    cell_wgsl,
    sequence_state_wgsl,
)

SIGNATURE: Final = (
    "void @recurrence(ptr %gates, ptr %weights, ptr %extra, ptr noalias %state, "
    "ptr noalias %room, ptr noalias %out, i64 %steps, i64 %hidden, i64 %gate_step, "
    "i64 %out_step)"
)
"""gates    of the first step; `gate_step` elements on are those of the next
weights  [blocks, hidden, gates, units of a block]
extra    the extra operand of this direction, if there is one
state    [parts, hidden]: before the first step, and at the end after the last
room     ROOM times `hidden` elements
out      what is shown of the first step; `out_step` elements on that of the next
"""
SCRATCH_SLOTS: Final = 7
_READ_SLOT, _BLEND_SLOT, _RESET_SLOT = 4, 5, 6
"""Which `hidden` elements of the room hold what products read, a GRU's z, its r · h."""
_LET_PATTERN: Final = re.compile(r"let (\w+) = (.+);")


@dataclass(frozen=True, slots=True)
class RecurrenceSpec:
    """Key of a compiled recurrent kernel: a cell without its sizes, and the vectors and
    lanes of a block of units.
    """

    net: RecurrentNetwork
    lanes: int
    vectors: int

    @property
    def width(self) -> int:
        return self.lanes * self.vectors


def recurrence_spec(
    net: RecurrentNetwork, direction: int, lanes: int
) -> RecurrenceSpec:
    """Return the spec of a direction's kernel for a processor with so many lanes."""
    while lanes > net.H:
        lanes //= 2
    max_vectors = {"lstm": 2, "gru": 2, "rnn": 4}[net.kind]
    vectors = max(1, min(max_vectors, net.H // lanes))
    cell = replace(
        net,
        T=0,
        B=0,
        D=1,
        H=0,
        direction="forward",
        activations=net.direction_activations(direction),
        state_input=None,
        extra_input=None if net.extra_input is None else 0,
        lengths_input=None,
    )
    return RecurrenceSpec(cell, lanes, vectors)


def recurrence_text(spec: RecurrenceSpec) -> str:
    """Generate @recurrence and its @recurrence_job. Errors  Unsupported."""
    return _RecurrenceCodegen(spec).text()


class _RecurrenceCodegen:
    """Code generator of the recurrence function."""

    def __init__(self, spec: RecurrenceSpec) -> None:
        self.spec, self.net = spec, spec.net
        self.ir = IRBuilder(SIGNATURE, VectorType("float", spec.lanes))
        unquantized = replace(
            self.net, quantizes_state=False
        )  # that is said in another way here
        cell_functions = parse_library("\n".join(activations_wgsl(unquantized, 0)))
        helper_functions = wgsl_library_for(activation_includes(unquantized, 0))
        functions = WgslLibrary(
            helper_functions.functions | cell_functions.functions,
            helper_functions.structs | cell_functions.structs,
        )
        self.lowering = LlvmLowering(self.ir, functions)

    def text(self) -> str:
        ir = self.ir
        padded_hidden = ir.add_int("%hidden", self.spec.width - 1)
        self.block_count = ir.emit_value(f"udiv i64 {padded_hidden}, {self.spec.width}")
        self.last_block_start = ir.subtract_int("%hidden", self.spec.width)
        for part in range(self.net.state_count):
            self._emit_copy(
                self._slot_pointer("%state", part),
                self._slot_pointer("%room", 2 * part),
            )
        ir.loop("%steps", self._emit_step)
        parity_offset = ir.multiply_int(ir.emit_value("and i64 %steps, 1"), "%hidden")
        for part in range(self.net.state_count):
            final_state = ir.element_pointer(
                self._slot_pointer("%room", 2 * part), parity_offset
            )
            self._emit_copy(final_state, self._slot_pointer("%state", part))
        ir.emit("ret void")
        return ir.text + job_wrapper_llvm_ir(SIGNATURE)

    def _slot_pointer(self, base: Value, count: int) -> Value:
        """Emit a pointer `count` times `hidden` elements past the base."""
        return self.ir.element_pointer(base, self.ir.multiply_int("%hidden", count))

    def _emit_block_loop(
        self, body: Callable[[IntValue, list[IntValue]], None]
    ) -> None:
        """Emit a loop over the blocks; `body` gets the block and the starts of its
        vectors.
        """
        ir, spec = self.ir, self.spec

        def block(block_index: IntValue) -> None:
            first = ir.min_int(
                ir.multiply_int(block_index, spec.width), self.last_block_start
            )
            body(
                block_index,
                [ir.add_int(first, v * spec.lanes) for v in range(spec.vectors)],
            )

        ir.loop(self.block_count, block)

    def _emit_copy(self, source: Value, target: Value) -> None:
        ir = self.ir

        def body(b: IntValue, places: list[IntValue]) -> None:
            for j in places:
                ir.store(
                    ir.load(ir.element_pointer(source, j)),
                    ir.element_pointer(target, j),
                )

        self._emit_block_loop(body)

    def _lower_expression(
        self, text: str, names: dict[str, LoweredValue]
    ) -> TypedValue:
        return self.lowering.convert(
            "F", self.lowering.lower(parse_expression(text), names)
        )

    def _emit_lets(self, lines: Sequence[str], names: dict[str, LoweredValue]) -> None:
        """Emit lines of WGSL `let` statements and add their values to `names`."""
        for line in lines:
            match = _LET_PATTERN.fullmatch(line)
            assert match is not None, line
            names[match[1]] = self._lower_expression(match[2], names)

    def _emit_step(self, t: IntValue) -> None:
        ir, net = self.ir, self.net
        old_offset = ir.multiply_int(ir.emit_value(f"and i64 {t}, 1"), "%hidden")
        new_offset = ir.subtract_int("%hidden", old_offset)
        slots = [
            self._slot_pointer("%room", 2 * part) for part in range(net.state_count)
        ]
        self.old_state = [ir.element_pointer(slot, old_offset) for slot in slots]
        self.new_state = [ir.element_pointer(slot, new_offset) for slot in slots]
        self.step_gates = ir.element_pointer("%gates", ir.multiply_int(t, "%gate_step"))
        self.step_output = ir.element_pointer("%out", ir.multiply_int(t, "%out_step"))
        state = self.old_state[0]
        if net.quantizes_state:
            state = self._slot_pointer("%room", _READ_SLOT)
            self._emit_quantized_state(state)
        if net.kind == "gru" and not net.reset_after_product:
            self._emit_block_loop(
                lambda b, places: self._emit_gru_gates(b, places, state)
            )
            self._emit_block_loop(self._emit_gru_candidate)
        else:
            self._emit_block_loop(lambda b, places: self._emit_cell(b, places, state))

    def _emit_quantized_state(self, target: Value) -> None:
        """Emit the quantization of the state to 8 bits over its range (with 0), and
        back.
        """
        ir, vector = self.ir, self.ir.vector_type.llvm_type
        zero = ir.vector_type.splat(0.0)
        bounds = [zero, zero]

        def update_bounds(b: IntValue, low: Value, high: Value) -> list[Value]:
            first = ir.min_int(
                ir.multiply_int(b, self.spec.width), self.last_block_start
            )
            extremes = [TypedValue("F", low), TypedValue("F", high)]
            for v in range(self.spec.vectors):
                h = TypedValue(
                    "F",
                    ir.load(
                        ir.element_pointer(
                            self.old_state[0],
                            ir.add_int(first, v * ir.vector_type.lanes),
                        )
                    ),
                )
                extremes = [
                    self.lowering.min_or_max(name, extreme, h)
                    for name, extreme in zip(("min", "max"), extremes, strict=True)
                ]
            return [extreme.value for extreme in extremes]

        bounds = ir.loop(
            self.block_count, update_bounds, [(vector, zero), (vector, zero)]
        )
        names: dict[str, LoweredValue] = {}
        for name, operation, value in zip(
            ("low", "high"), ("min", "max"), bounds, strict=True
        ):
            intrinsic = f"@llvm.vector.reduce.f{operation}.v{ir.vector_type.lanes}f32"
            scalar = ir.emit_value(f"call float {intrinsic}({vector} {value})")
            names[name] = TypedValue("F", ir.broadcast(scalar))
        lines = [
            "let wide = high - low;",
            "let scale = select(wide / 255.0, 1.0, wide == 0.0);",
            "let zero = round(-low / scale);",
        ]
        self._emit_lets(lines, names)

        def quantize_block(b: IntValue, places: list[IntValue]) -> None:
            for j in places:
                block_names = {
                    **names,
                    "x": TypedValue(
                        "F", ir.load(ir.element_pointer(self.old_state[0], j))
                    ),
                }
                text = "(clamp(round(x / scale) + zero, 0.0, 255.0) - zero) * scale"
                ir.store(
                    self._lower_expression(text, block_names).value,
                    ir.element_pointer(target, j),
                )

        self._emit_block_loop(quantize_block)

    def _load_gate(self, gate: int, j: IntValue, base: Value = "") -> Value:
        """Load a vector of a gate's part of this step's inputs, or of the extra
        operand.
        """
        return self.ir.load(
            self.ir.element_pointer(
                self._slot_pointer(base or self.step_gates, gate), j
            )
        )

    def _emit_gate_sums(
        self, b: IntValue, state: Value, gates: Sequence[int], initial_sums: list[Value]
    ) -> list[Value]:
        """Emit the sums of gates, vector by vector, including the product of the state
        with the weights.
        """
        ir, spec = self.ir, self.spec
        row_elements = self.net.gate_count * spec.width
        block = ir.multiply_int(ir.multiply_int(b, "%hidden"), row_elements)
        weights = ir.element_pointer(
            "%weights", ir.add_int(block, gates[0] * spec.width)
        )

        def term(k: IntValue, *sums: Value) -> list[Value]:
            v = ir.broadcast(ir.load_element(state, k))
            row = ir.element_pointer(weights, ir.multiply_int(k, row_elements))
            return [
                ir.add_reals(
                    partial_sum,
                    ir.multiply(
                        v, ir.load(ir.element_pointer(row, index * spec.lanes))
                    ),
                )
                for index, partial_sum in enumerate(sums)
            ]

        return ir.loop(
            "%hidden",
            term,
            [(ir.vector_type.llvm_type, initial) for initial in initial_sums],
        )

    def _initial_sums(
        self, gates: Sequence[int], places: list[IntValue]
    ) -> list[Value]:
        return [self._load_gate(g, j) for g in gates for j in places]

    def _store_named(
        self, names: dict[str, LoweredValue], name: str, pointer: Value
    ) -> None:
        result = names[name]
        assert isinstance(result, TypedValue)
        self.ir.store(result.value, pointer)

    def _store_state(self, names: dict[str, LoweredValue], j: IntValue) -> None:
        ir = self.ir
        for part, name in enumerate(("next_h", "next_c")[: self.net.state_count]):
            self._store_named(names, name, ir.element_pointer(self.new_state[part], j))
        self._store_named(
            names,
            sequence_state_wgsl(self.net),
            ir.element_pointer(self.step_output, j),
        )

    def _emit_cell(self, b: IntValue, places: list[IntValue], state: Value) -> None:
        """Emit a block of units of a cell that needs one product."""
        ir, net, V = self.ir, self.net, self.spec.vectors
        gates = range(net.gate_count)
        initial_sums = self._initial_sums(gates, places)
        late_inputs = initial_sums[-V:]
        if net.reset_after_product:  # the last gate's inputs stand beside its product
            initial_sums[-V:] = [ir.vector_type.splat(0.0)] * V
        sums = self._emit_gate_sums(b, state, gates, initial_sums)
        for v, j in enumerate(places):
            names: dict[str, LoweredValue] = {
                f"a{g}": TypedValue("F", sums[g * V + v]) for g in gates
            }
            if net.reset_after_product:
                names |= {
                    "m": TypedValue("F", sums[-V:][v]),
                    "a2": TypedValue("F", late_inputs[v]),
                }
            parts = zip("hc", self.old_state, strict=False)
            names |= {
                name: TypedValue("F", ir.load(ir.element_pointer(pointer, j)))
                for name, pointer in parts
            }
            if net.extra_input is not None:
                for g in range(net.extra_count):
                    names[f"extra_{g}u"] = TypedValue(
                        "F", self._load_gate(g, j, "%extra")
                    )
            self._emit_lets(cell_wgsl(net, "extra_{gate}"), names)
            self._store_state(names, j)

    def _emit_gru_gates(
        self, b: IntValue, places: list[IntValue], state: Value
    ) -> None:
        """Emit z and r · h of a block, which the product of the candidate state
        needs.
        """
        ir, V = self.ir, self.spec.vectors
        sums = self._emit_gate_sums(
            b, state, (0, 1), self._initial_sums((0, 1), places)
        )
        for v, j in enumerate(places):
            names: dict[str, LoweredValue] = {
                "a0": TypedValue("F", sums[v]),
                "a1": TypedValue("F", sums[V + v]),
                "h": TypedValue("F", ir.load(ir.element_pointer(self.old_state[0], j))),
            }
            self._emit_lets(["let z = f0(a0);", "let r = f0(a1) * h;"], names)
            self._store_named(
                names,
                "z",
                ir.element_pointer(self._slot_pointer("%room", _BLEND_SLOT), j),
            )
            self._store_named(
                names,
                "r",
                ir.element_pointer(self._slot_pointer("%room", _RESET_SLOT), j),
            )

    def _emit_gru_candidate(self, b: IntValue, places: list[IntValue]) -> None:
        ir = self.ir
        reset = self._slot_pointer("%room", _RESET_SLOT)
        blend = self._slot_pointer("%room", _BLEND_SLOT)
        sums = self._emit_gate_sums(b, reset, (2,), self._initial_sums((2,), places))
        for v, j in enumerate(places):
            names: dict[str, LoweredValue] = {
                "a2": TypedValue("F", sums[v]),
                "z": TypedValue("F", ir.load(ir.element_pointer(blend, j))),
                "h": TypedValue("F", ir.load(ir.element_pointer(self.old_state[0], j))),
            }
            self._emit_lets(["let n = f1(a2);", GRU_BLEND_WGSL], names)
            self._store_state(names, j)
