"""LLVM kernel for scaled dot-product attention in float32, head by head.

Keys are transposed once a task; then a few queries at a time have their scores, the
softmax of them and the weighted values while all of it lies in the nearest caches. What
is left of a length is done with some of what was done before: the same numbers again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rlxweb.codegen import llvm_math_functions
from rlxweb.codegen.llvm_builder import (
    IntValue,
    IRBuilder,
    Value,
    VectorType,
    transpose,
)
from rlxweb.codegen.llvm_row_reduction import MAXIMUM, reduce_elements, sum_same_sign
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir

SIGNATURE: Final = (
    "void @attention(ptr %job, float %scale, ptr %room, i64 %floats, ptr %taken)"
)
"""LLVM signature: `job` holds `JOB_FIELDS`, 64 bits each; `room` has `floats` floats
for each thread, at least `scratch_floats`; `taken` is the counter of claimed tasks,
followed by the number of threads.
"""
_OPERAND_FIELDS: Final = ("q", "k", "v", "out", "bias")
JOB_FIELDS: Final = (
    *_OPERAND_FIELDS,
    *(
        f"{operand}_{step}"
        for operand in _OPERAND_FIELDS
        for step in ("batch", "head", "row")
    ),
    *("heads", "group", "tasks", "blocks", "each", "SQ", "SK", "D", "DV"),
)
"""Fields of a job: addresses of the operands; their strides in elements by batch, head
and row (0 if broadcast); query heads, query heads per key head, tasks, tasks per head,
queries per task; and the lengths. The bias is stored key by key.
"""
QUERY_TILE: Final = 6
"""Queries processed together: as many as leave registers for the vectors they are
multiplied with.
"""


def attention_scratch_floats(keys: int, key_size: int) -> int:
    """Return the floats of a thread's scratch: transposed keys, scores, and the softmax
    denominators.
    """
    return keys * key_size + QUERY_TILE * keys + QUERY_TILE


class _HeadPointers(NamedTuple):
    """Pointers to the operands and scratch of one task."""

    q: Value
    k: Value
    v: Value
    out: Value
    bias: Value
    transposed_keys: Value
    scores: Value
    inverse_sums: Value


def attention_llvm_ir(nbytes: int) -> str:
    """Return the LLVM IR for vectors of `nbytes` bytes. D and DV must be multiples of
    16, SK at least 16 and SQ at least `QUERY_TILE`.
    """
    return _AttentionKernel(VectorType("float", nbytes // 4)).llvm_ir()


class _AttentionKernel:
    def __init__(self, vector_type: VectorType) -> None:
        ir = self.ir = IRBuilder(SIGNATURE, vector_type)
        self.lanes, self.scratch = vector_type.lanes, ""
        self.vectors_per_group = 4 if vector_type.nbytes == 64 else 2
        self.job_fields = ir.load_job_fields(JOB_FIELDS, _OPERAND_FIELDS)

    def llvm_ir(self) -> str:
        ir = self.ir
        thread_index = ir.emit_value(
            f"atomicrmw add ptr {ir.element_pointer('%taken', 1, 'i64')}, i64 1 "
            f"monotonic"
        )
        self.scratch = ir.element_pointer(
            "%room", ir.multiply_int(thread_index, "%floats")
        )
        ir.claim_loop("%taken", 1, self.job_fields["tasks"], self._emit_task)
        ir.emit("ret void")
        return ir.text + job_wrapper_llvm_ir(SIGNATURE)

    def _emit_task(self, task: Value) -> None:
        ir, job = self.ir, self.job_fields
        head = ir.emit_value(f"udiv i64 {task}, {job['blocks']}")
        block = ir.emit_value(f"urem i64 {task}, {job['blocks']}")
        batch = ir.emit_value(f"udiv i64 {head}, {job['heads']}")
        query_head = ir.emit_value(f"urem i64 {head}, {job['heads']}")
        key_head = ir.emit_value(f"udiv i64 {query_head}, {job['group']}")

        def base(name: str, head_index: Value) -> Value:
            offset = ir.add_int(
                ir.multiply_int(batch, job[f"{name}_batch"]),
                ir.multiply_int(head_index, job[f"{name}_head"]),
            )
            return ir.element_pointer(job[name], offset)

        scores = ir.element_pointer(self.scratch, ir.multiply_int(job["D"], job["SK"]))
        pointers = _HeadPointers(
            base("q", query_head),
            base("k", key_head),
            base("v", key_head),
            base("out", query_head),
            base("bias", query_head),
            self.scratch,
            scores,
            ir.element_pointer(scores, ir.multiply_int(QUERY_TILE, job["SK"])),
        )
        self._emit_key_transpose(pointers)
        begin = ir.multiply_int(block, job["each"])
        count = ir.min_int(job["each"], ir.subtract_int(job["SQ"], begin))
        padded_count = ir.add_int(count, QUERY_TILE - 1)
        last_query = ir.subtract_int(job["SQ"], QUERY_TILE)

        def emit_tile(i: IntValue) -> None:
            first = ir.min_int(
                ir.add_int(begin, ir.multiply_int(i, QUERY_TILE)), last_query
            )
            self._emit_scores(pointers, first)
            ir.loop(QUERY_TILE, lambda r: self._emit_softmax(pointers, r))
            self._emit_weighted_sum(pointers, first)

        ir.loop(ir.emit_value(f"udiv i64 {padded_count}, {QUERY_TILE}"), emit_tile)

    def _emit_key_transpose(self, pointers: _HeadPointers) -> None:
        """Transpose keys [SK, D] to [D, SK]."""
        ir, job, lanes = self.ir, self.job_fields, self.lanes

        def block(i: IntValue) -> None:
            key = self._first_key(i)

            def part(j: IntValue) -> None:
                feature = ir.multiply_int(j, lanes)
                rows = []
                for lane in range(lanes):
                    row = ir.multiply_int(ir.add_int(key, lane), job["k_row"])
                    rows.append(
                        ir.load(
                            ir.element_pointer(pointers.k, ir.add_int(row, feature))
                        )
                    )
                for lane, column in enumerate(transpose(ir, rows)):
                    row = ir.multiply_int(ir.add_int(feature, lane), job["SK"])
                    ir.store(
                        column,
                        ir.element_pointer(
                            pointers.transposed_keys, ir.add_int(row, key)
                        ),
                    )

            ir.loop(ir.emit_value(f"udiv i64 {job['D']}, {lanes}"), part)

        ir.loop(self._key_vectors(), block)

    def _key_vectors(self) -> IntValue:
        padded_keys = self.ir.add_int(self.job_fields["SK"], self.lanes - 1)
        return self.ir.emit_value(f"udiv i64 {padded_keys}, {self.lanes}")

    def _first_key(self, i: IntValue) -> IntValue:
        """Return the first key of the i-th vector of keys."""
        last_key = self.ir.subtract_int(self.job_fields["SK"], self.lanes)
        return self.ir.min_int(self.ir.multiply_int(i, self.lanes), last_key)

    def _group_loop(self, count: IntValue, body: object) -> None:
        """Emit `body(first, how_many)` for vectors in groups, then one by one."""
        assert callable(body)
        ir, abreast = self.ir, self.vectors_per_group
        groups = ir.emit_value(f"udiv i64 {count}, {abreast}")
        ir.loop(groups, lambda i: body(ir.multiply_int(i, abreast), abreast))
        done = ir.multiply_int(groups, abreast)
        ir.loop(ir.subtract_int(count, done), lambda i: body(ir.add_int(done, i), 1))

    def _emit_dot_products(
        self, count: IntValue, rows: list[Value], vectors: list[Value], step: Value
    ) -> list[list[Value]]:
        """Return the dot products of each row with each of the vectors, which begin at
        these pointers and advance by `step`.
        """
        ir, vector_count = self.ir, len(vectors)

        def add_term(i: IntValue, *accumulators: Value) -> list[Value]:
            offset = ir.multiply_int(i, step)
            loaded = [ir.load(ir.element_pointer(vector, offset)) for vector in vectors]
            updated = []
            for row_index, row in enumerate(rows):
                number = ir.broadcast(ir.load_element(row, i))
                updated += [
                    llvm_math_functions.multiply_add(
                        ir,
                        number,
                        vector,
                        accumulators[row_index * vector_count + column_index],
                    )
                    for column_index, vector in enumerate(loaded)
                ]
            return updated

        zero = (ir.vector_type.llvm_type, "zeroinitializer")
        flat = ir.loop(count, add_term, [zero] * (len(rows) * vector_count))
        return [
            flat[row_index * vector_count : (row_index + 1) * vector_count]
            for row_index in range(len(rows))
        ]

    def _row_pointers(self, base: Value, first: IntValue, step: Value) -> list[Value]:
        ir = self.ir
        return [
            ir.element_pointer(base, ir.multiply_int(ir.add_int(first, r), step))
            for r in range(QUERY_TILE)
        ]

    def _emit_scores(self, pointers: _HeadPointers, first: IntValue) -> None:
        """Compute the scores of the queries from `first` on, times the scale, plus the
        bias.
        """
        ir, job = self.ir, self.job_fields
        queries = self._row_pointers(pointers.q, first, job["q_row"])
        biases = self._row_pointers(pointers.bias, first, job["bias_row"])
        scale = ir.broadcast("%scale")

        def body(start: IntValue, how_many: int) -> None:
            keys = [
                self._first_key(ir.add_int(start, offset)) for offset in range(how_many)
            ]
            vectors = [
                ir.element_pointer(pointers.transposed_keys, key) for key in keys
            ]
            products = self._emit_dot_products(job["D"], queries, vectors, job["SK"])
            for r, values in enumerate(products):
                row = ir.element_pointer(pointers.scores, ir.multiply_int(r, job["SK"]))
                for key, value in zip(keys, values, strict=True):
                    bias = ir.load(ir.element_pointer(biases[r], key))
                    ir.store(
                        ir.add_reals(ir.multiply(value, scale), bias),
                        ir.element_pointer(row, key),
                    )

        self._group_loop(self._key_vectors(), body)

    def _emit_softmax(self, pointers: _HeadPointers, r: IntValue) -> None:
        """Replace a row of scores by their exponentials, and store 1 over their sum."""
        ir, keys = self.ir, self.job_fields["SK"]
        row = ir.element_pointer(pointers.scores, ir.multiply_int(r, keys))
        # What a NaN does shows where it is subtracted.
        maximum = reduce_elements(
            ir,
            keys,
            lambda i: ir.load(ir.element_pointer(row, i)),
            MAXIMUM,
            ignore_nan=True,
        )

        def exponential(i: IntValue) -> Value:
            shifted = ir.subtract_reals(
                ir.load(ir.element_pointer(row, i)), ir.broadcast(maximum)
            )
            e = llvm_math_functions.exp_nonpositive(ir, shifted)
            ir.store(e, ir.element_pointer(row, i))
            return e

        inverse = ir.emit_value(
            f"fdiv double 1.0, {sum_same_sign(ir, keys, exponential)}"
        )
        factor = ir.emit_value(f"fptrunc double {inverse} to float")
        ir.emit(
            f"store float {factor}, ptr "
            f"{ir.element_pointer(pointers.inverse_sums, r)}, align 4"
        )

    def _emit_weighted_sum(self, pointers: _HeadPointers, first: IntValue) -> None:
        """Store the weighted sums of the values as the queries' outputs."""
        ir, job = self.ir, self.job_fields
        weights = self._row_pointers(pointers.scores, 0, job["SK"])
        outs = self._row_pointers(pointers.out, first, job["out_row"])

        def body(start: IntValue, how_many: int) -> None:
            places = [
                ir.multiply_int(ir.add_int(start, offset), self.lanes)
                for offset in range(how_many)
            ]
            vectors = [ir.element_pointer(pointers.v, offset) for offset in places]
            products = self._emit_dot_products(
                job["SK"], weights, vectors, job["v_row"]
            )
            for r, values in enumerate(products):
                factor = ir.broadcast(ir.load_element(pointers.inverse_sums, r))
                for offset, value in zip(places, values, strict=True):
                    ir.store(
                        ir.multiply(value, factor), ir.element_pointer(outs[r], offset)
                    )

        self._group_loop(ir.emit_value(f"udiv i64 {job['DV']}, {self.lanes}"), body)
