"""LLVM IR builder: writes the text of one function, instruction by instruction.

Every value is made once and has a name; whole vectors are the usual kind of number. A
product that is added may be contracted to one rounding, nothing else is reordered. It
knows no kernel and no library: the text is a string that tests can read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from rlxweb.codegen.butterfly import ButterflyBuilder, ComplexNames

FloatType = Literal["float", "double"]
Value: TypeAlias = str
"""LLVM operand: a name such as %v7, or a constant."""
IntValue: TypeAlias = "str | int"
"""64-bit integer operand: an IR value, or a Python int that is known at code generation
time.
"""

TYPE_NBYTES: Final = {"float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


def float_literal(value: float, float_type: str) -> str:
    """Return a float as an LLVM literal: the hexadecimal bits of the double that equals
    it.

    Rounded to single precision first where that is its kind.
    """
    if float_type == "float":
        value = struct.unpack("f", struct.pack("f", value))[0]
    return "0x" + struct.pack(">d", value).hex().upper()


@dataclass(frozen=True, slots=True)
class VectorType:
    """SIMD vector type that a kernel computes with: element type and lane count."""

    element_type: FloatType
    lanes: int

    @property
    def llvm_type(self) -> str:
        """LLVM's name of the vector type, such as `<8 x float>`."""
        return f"<{self.lanes} x {self.element_type}>"

    @property
    def llvm_mask_type(self) -> str:
        """LLVM's name of the matching mask type, such as `<8 x i1>`."""
        return f"<{self.lanes} x i1>"

    @property
    def nbytes(self) -> int:
        return self.lanes * TYPE_NBYTES[self.element_type]

    def splat(self, value: float) -> str:
        """Return a vector constant with the same value in every lane."""
        lane = f"{self.element_type} {float_literal(value, self.element_type)}"
        return f"<{', '.join([lane] * self.lanes)}>"


class IRBuilder(ButterflyBuilder):
    """Builder of one LLVM function; `text` is the IR emitted so far.

    signature   "void @name(ptr noalias %x, i64 %n)"
    """

    def __init__(self, signature: str, vector_type: VectorType) -> None:
        self.vector_type = vector_type
        self._signature = signature
        self._lines: list[str] = []
        self._name_count = 0
        self._block = "entry"

    @property
    def text(self) -> str:
        lines = "\n".join(self._lines)
        return f"define {self._signature} {{\nentry:\n{lines}\n}}\n"

    # --- instructions

    def emit(self, line: str) -> None:
        """Append one line of IR."""
        self._lines.append(f"  {line}")

    def emit_value(self, instruction: str) -> Value:
        """Emit an instruction and return the name of its result."""
        self._name_count += 1
        name = f"%v{self._name_count}"
        self.emit(f"{name} = {instruction}")
        return name

    def _emit_binary(self, opcode: str, a: Value, b: Value) -> Value:
        return self.emit_value(
            f"{opcode} contract {self.vector_type.llvm_type} {a}, {b}"
        )

    def add_reals(self, a: Value, b: Value) -> Value:
        return self._emit_binary("fadd", a, b)

    def subtract_reals(self, a: Value, b: Value) -> Value:
        return self._emit_binary("fsub", a, b)

    def multiply(self, a: Value, b: Value) -> Value:
        return self._emit_binary("fmul", a, b)

    def negate_real(self, a: Value) -> Value:
        return self.emit_value(f"fneg {self.vector_type.llvm_type} {a}")

    def scale_real(self, a: Value, factor: float, addend: Value = "") -> Value:
        product = self.multiply(a, self.vector_type.splat(factor))
        return self.add_reals(addend, product) if addend else product

    def multiply_complex(self, a: ComplexNames, b: ComplexNames) -> ComplexNames:
        """Multiply two complex values."""
        re = self.subtract_reals(self.multiply(a[0], b[0]), self.multiply(a[1], b[1]))
        im = self.add_reals(self.multiply(a[0], b[1]), self.multiply(a[1], b[0]))
        return re, im

    def emit_constant_product(self, x: ComplexNames, factor: complex) -> ComplexNames:
        return self.multiply_complex(
            x,
            (self.vector_type.splat(factor.real), self.vector_type.splat(factor.imag)),
        )

    def add_squared_magnitude(self, x: ComplexNames, total: Value) -> Value:
        """Add re² + im² of a complex value to a running total."""
        re = self.multiply(x[0], x[0])
        return self.add_reals(total, self.add_reals(re, self.multiply(x[1], x[1])))

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Return a vector whose lane i is lane `lanes[i]` of a and b concatenated."""
        vector = self.vector_type.llvm_type
        mask = ", ".join(f"i32 {i}" for i in lanes)
        return self.emit_value(
            f"shufflevector {vector} {a}, {vector} {b}, <{len(lanes)} x i32> <{mask}>"
        )

    def broadcast(self, scalar: Value, element_type: str = "") -> Value:
        """Broadcast a scalar to every lane."""
        lanes = self.vector_type.lanes
        element_type = element_type or self.vector_type.element_type
        vector = f"<{lanes} x {element_type}>"
        first_lane = self.emit_value(
            f"insertelement {vector} poison, {element_type} {scalar}, i64 0"
        )
        if lanes == 1:
            return first_lane
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.emit_value(
            f"shufflevector {vector} {first_lane}, {vector} poison, {zeros}"
        )

    # --- whole numbers: what is known now is computed now

    def add_int(self, a: IntValue, b: IntValue) -> IntValue:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        return b if a == 0 else self.emit_value(f"add i64 {a}, {b}")

    def multiply_int(self, a: IntValue, b: IntValue) -> IntValue:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if 0 in (a, b):
            return 0
        if b == 1:
            return a
        return b if a == 1 else self.emit_value(f"mul i64 {a}, {b}")

    def subtract_int(self, a: IntValue, b: IntValue) -> IntValue:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.emit_value(f"sub i64 {a}, {b}")

    def min_int(self, a: IntValue, b: IntValue) -> IntValue:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        lower = self.emit_value(f"icmp ult i64 {a}, {b}")
        return self.emit_value(f"select i1 {lower}, i64 {a}, i64 {b}")

    # --- memory: elements of the shape's kind where nothing else is said

    def element_pointer(
        self, base: Value, index: IntValue, element_type: str = ""
    ) -> Value:
        """Return a pointer to element `index` behind `base`."""
        if index == 0:
            return base
        element_type = element_type or self.vector_type.element_type
        return self.emit_value(
            f"getelementptr inbounds {element_type}, ptr {base}, i64 {index}"
        )

    def load(self, pointer: Value) -> Value:
        """Load a vector; it need not be aligned."""
        align = TYPE_NBYTES[self.vector_type.element_type]
        return self.emit_value(
            f"load {self.vector_type.llvm_type}, ptr {pointer}, align {align}"
        )

    def store(self, value: Value, pointer: Value) -> None:
        align = TYPE_NBYTES[self.vector_type.element_type]
        self.emit(
            f"store {self.vector_type.llvm_type} {value}, ptr {pointer}, align {align}"
        )

    def gather(self, base: Value, offsets: Value) -> Value:
        """Gather a vector of elements at i32 offsets from a base pointer."""
        lanes = self.vector_type.lanes
        vector = self.vector_type.llvm_type
        mask = self.vector_type.llvm_mask_type
        pointers = self.emit_value(
            f"getelementptr {self.vector_type.element_type}, ptr {base}, <{lanes} x "
            f"i32> {offsets}"
        )
        suffix = f"v{lanes}f{8 * TYPE_NBYTES[self.vector_type.element_type]}.v{lanes}p0"
        all_true = f"<{', '.join(['i1 true'] * lanes)}>"
        return self.emit_value(
            f"call {vector} @llvm.masked.gather.{suffix}(<{lanes} x ptr> {pointers}, "
            f"i32 {TYPE_NBYTES[self.vector_type.element_type]}, {mask} {all_true}, "
            f"{vector} poison)"
        )

    def prefetch(self, pointer: Value) -> None:
        """Prefetch a cache line for reading; the address may lie past the end of the
        buffer.
        """
        self.emit(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")

    def load_element(
        self, base: Value, index: IntValue, element_type: str = ""
    ) -> Value:
        """Load one element."""
        element_type = element_type or self.vector_type.element_type
        pointer = self.element_pointer(base, index, element_type)
        return self.emit_value(
            f"load {element_type}, ptr {pointer}, align "
            f"{TYPE_NBYTES.get(element_type, 8)}"
        )

    def load_index(self, base: Value, index: IntValue) -> Value:
        """Load one element of an i32 array, zero-extended to 64 bits."""
        return self.emit_value(
            f"zext i32 {self.load_element(base, index, 'i32')} to i64"
        )

    # --- the way of control

    def loop(
        self,
        count: IntValue,
        body: Callable[..., Sequence[Value] | None],
        carried: Sequence[tuple[str, Value]] = (),
    ) -> list[Value]:
        """Emit a loop that runs `body(i, *values)` for i from 0 below `count`.

        carried   (type, first value) of what a turn hands to the next; `body` returns
                  the new ones
        returns   what the last turn handed on
        """
        if count == 1:
            return list(body(0, *(value for _, value in carried)) or ())
        stem = self._new_label("loop")
        head_label = f"{stem}.head"
        body_label = f"{stem}.turn"
        end_label = f"{stem}.end"
        index, names = f"%{stem}.i", [f"%{stem}.{n}" for n in range(len(carried))]
        entry_block = self._block
        self.emit(f"br label %{head_label}")
        self._begin_block(head_label)
        phi_position = len(self._lines)
        has_next = self.emit_value(f"icmp ult i64 {index}, {count}")
        self.emit(f"br i1 {has_next}, label %{body_label}, label %{end_label}")
        self._begin_block(body_label)
        next_values = body(index, *names) or ()
        following = self.emit_value(f"add nuw nsw i64 {index}, 1")
        last_block = self._block
        self.emit(f"br label %{head_label}")
        phis = [(index, "i64", "0", following)] + [
            (name, value_type, initial, next_value)
            for name, (value_type, initial), next_value in zip(
                names, carried, next_values, strict=True
            )
        ]
        self._lines[phi_position:phi_position] = [
            f"  {name} = phi {value_type} [ {initial}, %{entry_block} ], [ "
            f"{next_value}, %{last_block} ]"
            for name, value_type, initial, next_value in phis
        ]
        self._begin_block(end_label)
        return names

    def claim_loop(
        self,
        counter: Value,
        step: IntValue,
        count: IntValue,
        body: Callable[[Value], object],
    ) -> None:
        """Emit a loop over chunks that threads claim atomically: `body(first)` for
        every step-th number below `count` that no other thread has claimed.

        counter  where all threads count what they took, from 0
        """
        stem = self._new_label("claim")
        self.emit(f"br label %{stem}.head")
        self._begin_block(f"{stem}.head")
        first = self.emit_value(f"atomicrmw add ptr {counter}, i64 {step} monotonic")
        has_next = self.emit_value(f"icmp ult i64 {first}, {count}")
        self.emit(f"br i1 {has_next}, label %{stem}.turn, label %{stem}.end")
        self._begin_block(f"{stem}.turn")
        body(first)
        self.emit(f"br label %{stem}.head")
        self._begin_block(f"{stem}.end")

    def parallel_loop(
        self,
        chunk: IntValue,
        count: IntValue,
        body: Callable[[IntValue], object],
        claimed: Value = "%taken",
    ) -> None:
        """Emit a parallel loop: `body(i)` for every i below `count`; each thread claims
        a chunk of iterations at a time, and counts them at the address `claimed`.
        """

        def emit_chunk(begin: Value) -> None:
            def emit_item(i: IntValue) -> None:
                body(self.add_int(begin, i))

            self.loop(self.min_int(chunk, self.subtract_int(count, begin)), emit_item)

        self.claim_loop(claimed, chunk, count, emit_chunk)

    def load_job_fields(
        self, names: Sequence[str], addresses: Collection[str]
    ) -> dict[str, Value]:
        """Load the job's fields by name, as pointers or 64-bit integers."""
        return {
            name: self.load_element(
                "%job", index, "ptr" if name in addresses else "i64"
            )
            for index, name in enumerate(names)
        }

    def if_then(self, condition: Value, body: Callable[[], object]) -> None:
        """Emit `body` inside a branch that is taken if the condition holds."""
        then_label, end_label = self._new_label("then"), self._new_label("past")
        self.emit(f"br i1 {condition}, label %{then_label}, label %{end_label}")
        self._begin_block(then_label)
        body()
        self.emit(f"br label %{end_label}")
        self._begin_block(end_label)

    def if_else(
        self,
        condition: Value,
        yes: Callable[[], Sequence[tuple[str, Value]]],
        no: Callable[[], Sequence[tuple[str, Value]]],
    ) -> list[Value]:
        """Emit an if-else that yields the (type, value) pairs of the branch that is
        taken.
        """
        stem = self._new_label("choice")
        self.emit(f"br i1 {condition}, label %{stem}.yes, label %{stem}.no")
        branches = []
        for label, body in (("yes", yes), ("no", no)):
            self._begin_block(f"{stem}.{label}")
            values = body()
            branches.append((values, self._block))
            self.emit(f"br label %{stem}.end")
        self._begin_block(f"{stem}.end")
        (yes_values, yes_block), (no_values, no_block) = branches
        return [
            self.emit_value(
                f"phi {value_type} [ {yes_value}, %{yes_block} ], [ {no_value}, "
                f"%{no_block} ]"
            )
            for (value_type, yes_value), (_, no_value) in zip(
                yes_values, no_values, strict=True
            )
        ]

    @contextmanager
    def single_lane(self) -> Iterator[None]:
        """Switch to one-lane vectors inside the context, for a remainder that does not
        fill a vector.
        """
        full_type = self.vector_type
        self.vector_type = VectorType(full_type.element_type, 1)
        try:
            yield
        finally:
            self.vector_type = full_type

    def vector_loop(self, count: IntValue, body: Callable[[IntValue], None]) -> None:
        """Emit a vectorized loop: `body(i)` for full vectors that begin at i, then
        element by element for the remainder.
        """
        vector_count, remainder_start = self.full_vectors(count)
        lanes = self.vector_type.lanes
        if isinstance(vector_count, int):
            self.loop(vector_count, lambda i: body(self.multiply_int(i, lanes)))
        else:  # two at a time: what steers a loop is half of some

            def emit_two(i: IntValue) -> None:
                body(self.multiply_int(i, 2 * lanes))
                body(self.add_int(self.multiply_int(i, 2 * lanes), lanes))

            pairs = self.emit_value(f"lshr i64 {vector_count}, 1")
            self.loop(pairs, emit_two)
            last_start = self.subtract_int(remainder_start, lanes)
            is_odd = self.emit_value(f"trunc i64 {vector_count} to i1")
            self.if_then(is_odd, lambda: body(last_start))
        with self.single_lane():
            self.loop(
                self.subtract_int(count, remainder_start),
                lambda i: body(self.add_int(remainder_start, i)),
            )

    def sum_terms(self, count: IntValue, term: Callable[[IntValue], Value]) -> Value:
        """Return the sum, as one number, of the vectors that `term(i)` yields."""
        vector_count, remainder_start = self.full_vectors(count)
        lanes, element_type = self.vector_type.lanes, self.vector_type.element_type

        def add_vector(i: IntValue, partial_sum: Value) -> list[Value]:
            return [self.add_reals(partial_sum, term(self.multiply_int(i, lanes)))]

        def add_element(i: IntValue, partial_sum: Value) -> list[Value]:
            return [self.add_reals(partial_sum, term(self.add_int(remainder_start, i)))]

        (sums,) = self.loop(
            vector_count, add_vector, [(self.vector_type.llvm_type, "zeroinitializer")]
        )
        vector_sum = self.sum_lanes(element_type, sums)
        with self.single_lane():
            initial = self.broadcast(vector_sum)
            (sums,) = self.loop(
                self.subtract_int(count, remainder_start),
                add_element,
                [(self.vector_type.llvm_type, initial)],
            )
            return self.emit_value(
                f"extractelement {self.vector_type.llvm_type} {sums}, i64 0"
            )

    def sum_lanes(self, element_type: str, value: Value) -> Value:
        """Return the sum of a vector's lanes."""
        lanes = self.vector_type.lanes
        start = f"{element_type} {float_literal(-0.0, element_type)}"
        name = f"@llvm.vector.reduce.fadd.v{lanes}f{8 * TYPE_NBYTES[element_type]}"
        operand = f"<{lanes} x {element_type}> {value}"
        return self.emit_value(
            f"call reassoc {element_type} {name}({start}, {operand})"
        )

    def full_vectors(self, count: IntValue) -> tuple[IntValue, IntValue]:
        """Return the number of full vectors in `count` elements, and the number of
        elements in them.
        """
        lanes = self.vector_type.lanes
        if isinstance(count, int):
            return count // lanes, count - count % lanes
        vector_count = self.emit_value(f"udiv i64 {count}, {lanes}")
        return vector_count, self.multiply_int(vector_count, lanes)

    def _new_label(self, stem: str) -> str:
        self._name_count += 1
        return f"{stem}{self._name_count}"

    def _begin_block(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label


def transpose(ir: IRBuilder, rows: Sequence[Value]) -> list[Value]:
    """Transpose a square of `lanes` vectors of `lanes` elements in registers."""
    lanes, vectors = ir.vector_type.lanes, list(rows)
    step = 1
    while step < lanes:
        for i in range(lanes):
            if i & step:
                continue
            low = [e ^ step | lanes if e & step else e for e in range(lanes)]
            high = [e + lanes if e & step else e | step for e in range(lanes)]
            a, b = vectors[i], vectors[i | step]
            vectors[i], vectors[i | step] = (
                ir.shuffle(a, b, low),
                ir.shuffle(a, b, high),
            )
        step *= 2
    return vectors
