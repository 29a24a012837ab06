"""LLVM kernel for float32 convolution, a few channels of a line at a time.

The array comes in its padding and sorted by the phases of its strides, so that windows
that follow each other follow each other in memory too: a tap of the window is one
offset, for whichever line. Some channels meet some vectors of a line in registers, tap
by tap. What is left of channels or of a line is done with some of what was done before:
the same numbers again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rlxweb.codegen import llvm_math_functions
from rlxweb.codegen.llvm_builder import IntValue, IRBuilder, Value, VectorType
from rlxweb.codegen.native_calls import job_wrapper_llvm_ir

SIGNATURE: Final = "void @convolution(ptr %job, ptr %taken)"
"""LLVM signature: a job of `JOB_FIELDS`, 64 bits each, and the counter of claimed
tasks.
"""
_ADDRESS_FIELDS: Final = ("x", "w", "out", "taps")
JOB_FIELDS: Final = (
    *_ADDRESS_FIELDS,
    *("count", "tasks", "each", "groups", "channels", "blocks", "last"),
    *("shares", "share", "lines", "inner", "length", "turns"),
    *("x_n", "x_g", "x_0", "x_1", "out_n", "out_g", "out_m", "out_0", "out_1"),
)
"""Fields of a job: addresses of floats and of the taps' offsets (64 bits); taps; tasks,
and how many a thread claims at a time; groups, channels per group, blocks of channels,
the first channel of the last block; tasks per line, blocks per task; lines per image,
lines of its inner axis; elements per line, steps of some vectors per line; strides in
elements by image, group, channel and line.
"""


class ConvolutionTile(NamedTuple):
    """Register tile: channels, and vectors of a line."""

    rows: int
    vectors: int


def convolution_tiles(nbytes: int) -> list[ConvolutionTile]:
    """Return the tiles that leave registers for their operands, for vectors of `nbytes`
    bytes.
    """
    has_wide_vectors = nbytes == 64  # which come with twice as many registers
    max_accumulators = 24 if has_wide_vectors else 12
    return [
        ConvolutionTile(rows, vectors)
        for rows in (8, 6, 4, 2, 1)
        for vectors in ((4, 3, 2) if has_wide_vectors else (3, 2))
        if rows * vectors <= max_accumulators
    ]


def convolution_llvm_ir(tile: ConvolutionTile, nbytes: int) -> str:
    """Return the LLVM IR for a tile and vectors of `nbytes` bytes: lines must be no
    shorter than a vector, and channels no fewer than the tile's.
    """
    return _ConvolutionKernel(tile, VectorType("float", nbytes // 4)).llvm_ir()


class _ConvolutionKernel:
    def __init__(self, tile: ConvolutionTile, vector_type: VectorType) -> None:
        ir = self.ir = IRBuilder(SIGNATURE, vector_type)
        self.tile = tile
        self.job_fields = ir.load_job_fields(JOB_FIELDS, _ADDRESS_FIELDS)

    def llvm_ir(self) -> str:
        ir, job = self.ir, self.job_fields
        ir.parallel_loop(job["each"], job["tasks"], self._emit_line)
        ir.emit("ret void")
        return ir.text + job_wrapper_llvm_ir(SIGNATURE)

    def _line_pointer(
        self, name: str, parts: tuple[Value, Value, Value, Value]
    ) -> Value:
        """Return the pointer to a line of an operand."""
        ir = self.ir
        offset: IntValue = 0
        for step, index in zip(("n", "g", "0", "1"), parts, strict=True):
            offset = ir.add_int(
                offset, ir.multiply_int(index, self.job_fields[f"{name}_{step}"])
            )
        return ir.element_pointer(self.job_fields[name], offset)

    def _emit_line(self, task: IntValue) -> None:
        ir, job = self.ir, self.job_fields
        share = ir.emit_value(f"urem i64 {task}, {job['shares']}")
        task = ir.emit_value(f"udiv i64 {task}, {job['shares']}")
        image = ir.emit_value(f"udiv i64 {task}, {job['lines']}")
        line = ir.emit_value(f"urem i64 {task}, {job['lines']}")
        group = ir.emit_value(f"urem i64 {image}, {job['groups']}")
        parts = (
            ir.emit_value(f"udiv i64 {image}, {job['groups']}"),
            group,
            ir.emit_value(f"udiv i64 {line}, {job['inner']}"),
            ir.emit_value(f"urem i64 {line}, {job['inner']}"),
        )
        x, out = self._line_pointer("x", parts), self._line_pointer("out", parts)
        group_channel = ir.multiply_int(group, job["channels"])

        begin = ir.multiply_int(share, job["share"])
        count = ir.min_int(job["share"], ir.subtract_int(job["blocks"], begin))

        def block(i: IntValue) -> None:
            b = ir.add_int(begin, i)
            first = ir.min_int(ir.multiply_int(b, self.tile.rows), job["last"])
            weight_offset = ir.multiply_int(
                ir.add_int(group_channel, first), job["count"]
            )
            weights = [
                ir.element_pointer(
                    job["w"],
                    ir.add_int(weight_offset, ir.multiply_int(r, job["count"])),
                )
                for r in range(self.tile.rows)
            ]
            rows = ir.element_pointer(out, ir.multiply_int(first, job["out_m"]))
            ir.loop(job["turns"], lambda i: self._emit_tile(x, weights, rows, i))

        ir.loop(count, block)

    def _emit_tile(
        self, x: Value, weights: list[Value], out: Value, i: IntValue
    ) -> None:
        """Compute the tile's i-th group of vectors, over all taps."""
        ir, job, (rows, vectors) = self.ir, self.job_fields, self.tile
        lanes = ir.vector_type.lanes
        last_start = ir.subtract_int(job["length"], lanes)
        begin = ir.multiply_int(i, vectors * lanes)
        places = [
            ir.min_int(ir.add_int(begin, v * lanes), last_start) for v in range(vectors)
        ]

        def tap(t: IntValue, *accumulators: Value) -> list[Value]:
            source = ir.element_pointer(x, ir.load_element(job["taps"], t, "i64"))
            loaded = [ir.load(ir.element_pointer(source, offset)) for offset in places]
            updated = []
            for r, weight_row in enumerate(weights):
                number = ir.broadcast(ir.load_element(weight_row, t))
                updated += [
                    llvm_math_functions.multiply_add(
                        ir, number, vector, accumulators[r * vectors + v]
                    )
                    for v, vector in enumerate(loaded)
                ]
            return updated

        zero = (ir.vector_type.llvm_type, "zeroinitializer")
        sums = ir.loop(job["count"], tap, [zero] * (rows * vectors))
        for r in range(rows):
            row = ir.element_pointer(out, ir.multiply_int(r, job["out_m"]))
            for v, offset in enumerate(places):
                ir.store(sums[r * vectors + v], ir.element_pointer(row, offset))
