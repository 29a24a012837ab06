"""WebAssembly code of a row kernel, as `row_reduction_llvm.py` writes it for
processors, with the same arguments.

A row is walked four elements at once; the last four may overlap those before, and what
was counted there counts no more. Sums are in double precision; terms of one sign are
added in single precision for a short run, where nothing cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rlxweb.codegen.elementwise_wasm import (
    KIND_BYTES,
    LANES,
    emit_broadcast_load,
    emit_vector_load,
    emit_vector_store,
)
from rlxweb.codegen.native_calls import WORD_NBYTES
from rlxweb.codegen.row_kernel import RowKernel
from rlxweb.codegen.row_kernel_writer import JOB_WORDS, RowKernelWriter, kernel_library
from rlxweb.codegen.wasm_builder import WasmFunctionBuilder, encode_module
from rlxweb.codegen.wgsl_to_instructions import TypedValue
from rlxweb.codegen.wgsl_to_wasm import REQUIRED_INCLUDES, WasmLowering
from rlxweb.core.errors import Unsupported

RUN_LENGTH: Final = 128
"""Elements that are added in single precision before their sum is widened; a power of
two.
"""
_UPPER_LANES, _SWAPPED_HALVES, _SWAPPED_PAIRS = (2, 3, 2, 3), (2, 3, 0, 1), (1, 0, 3, 2)


def row_kernel_module(kernel: RowKernel, is_scalar: Sequence[bool]) -> bytes:
    """Return a module with @rows_job(job), which computes rows of four elements at
    least; its job is that of native code, and it claims all rows.

    is_scalar  which reads are one number for a whole row
    Errors   Unsupported.
    """
    return encode_module([_WasmRowKernelWriter(kernel, is_scalar).function()])


class _WasmRowKernelWriter(RowKernelWriter[None]):
    """Writer of a row kernel in WebAssembly; the local variable `first` is the index of
    a vector, and `mask` has the lanes that no vector before had.
    """

    lowering: WasmLowering

    def __init__(self, kernel: RowKernel, is_scalar: Sequence[bool]) -> None:
        self.f = WasmFunctionBuilder("rows_job", "job")
        library = kernel_library(kernel, *REQUIRED_INCLUDES)
        super().__init__(kernel, is_scalar, WasmLowering(self.f, library))
        if any(kind not in KIND_BYTES for kind in self.kinds):
            raise Unsupported("compile rows", "WebAssembly does not support f16")
        count = range(len(self.kinds))
        self.rows, self.steps = [f"row{k}" for k in count], [f"step{k}" for k in count]

    def function(self) -> WasmFunctionBuilder:
        """Return the function of the kernel."""
        f = self.f
        f.declare_locals("i32", "outer", "n", "at", "first", "last")
        f.declare_locals("i32", *self.rows, *self.steps)
        f.declare_locals("v128", "lanes", "mask")
        f.lane_constants("lanes", range(LANES))
        words = {"outer": 0, "n": 1}
        for k, name in enumerate((*self.rows, *self.steps), JOB_WORDS):
            words[name] = k
        for name, k in words.items():
            f.emit("job")
            f.emit_memory_access("i32.load", WORD_NBYTES * k)
            f.set_local(name)
        f.set_local("last", "n", LANES, "i32.sub")
        with f.loop_until("outer", "i32.eqz"):
            self.emit_row()
            for row, step in zip(self.rows, self.steps, strict=True):
                f.set_local(row, row, step, "i32.add")
            f.set_local("outer", "outer", 1, "i32.sub")
        return f

    @contextmanager
    def _vectors(self, *, has_mask: bool = True) -> Iterator[None]:
        """Emit a loop over the vectors of the row."""
        f = self.f
        f.set_local("at", 0)
        with f.loop_until("at", "n", "i32.ge_u"):
            f.set_local("first", "at", "last", "at", "last", "i32.lt_u", "select")
            if has_mask:
                new_lanes = "at", "first", "i32.sub", "i32x4.splat", "i32x4.ge_s"
                f.set_local("mask", "lanes", *new_lanes)
            yield
            f.set_local("at", "at", LANES, "i32.add")

    def _for_each_vector(self, body: Callable[[None], None]) -> None:
        with self._vectors(has_mask=self.is_value_stored):
            body(None)

    def _load_row_value(self, read: int) -> TypedValue:
        row = self.rows[1 + read]
        return emit_broadcast_load(self.lowering, self.kinds[1 + read], row)

    def _load(self, array: int, index: None) -> TypedValue:
        return emit_vector_load(self.lowering, self.kinds[array], self.rows[array])

    def _store(self, value: TypedValue, index: None) -> None:
        if self.is_value_stored:  # what was computed from there is computed once
            stored = emit_vector_load(self.lowering, value.kind, self.rows[0]).value
            words = value.value, stored, "mask", "v128.bitselect"
            value = TypedValue(value.kind, self.lowering.emit_value(*words))
        emit_vector_store(self.lowering, value, self.rows[0])

    def _broadcast(self, row_value: TypedValue) -> TypedValue:
        return row_value  # it is in each lane

    def _first_lane(self, vector: TypedValue) -> TypedValue:
        return vector

    def _store_row_value(self, value: TypedValue) -> None:
        row = self.rows[0]
        if value.kind != "B":
            self.f.emit(row, value.value)
            self.f.store_lane()
            return
        self.f.emit(row, value.value)
        self.f.emit_lane_access("extract", 0)
        self.f.emit(1, "i32.and")
        self.f.emit_memory_access("i32.store8")

    def _exp_nonpositive(self, argument: TypedValue) -> TypedValue:
        power = self.lowering.call_function("precise_exp", [argument])
        assert isinstance(power, TypedValue)
        return power

    # --- reductions

    def _reduce_terms(
        self, kind: str, is_same_sign: bool, term: Callable[[None], TypedValue]
    ) -> TypedValue:
        if kind in ("max", "min"):
            return TypedValue("F", self._extreme(kind, term))
        if kind == "prod":
            total = self._accumulate("mul", 1.0, term, run_length=LANES)
        else:
            run_length = RUN_LENGTH if is_same_sign else LANES
            total = self._accumulate("add", 0.0, term, run_length)
        if kind == "mean":
            count = self.lowering.emit_value(
                "n", "i32x4.splat", "f64x2.convert_low_i32x4_u"
            )
            total = self.lowering.emit_value(total, count, "f64x2.div")
        single = self.lowering.emit_value(total, "f32x4.demote_f64x2_zero")
        return TypedValue("F", self._shuffled(single, (0, 0, 0, 0)))

    def _accumulate(
        self,
        operation: str,
        identity: float,
        term: Callable[[None], TypedValue],
        run_length: int,
    ) -> str:
        """Emit a sum or product of a row's terms; return two lanes of double precision
        with the result in each.
        """
        f, lowering = self.f, self.lowering
        neutral = lowering.splat("F", identity).value
        total = lowering.emit_value(neutral, "f64x2.promote_low_f32x4")
        run = lowering.emit_value(neutral)

        def add_run() -> None:
            upper = self._shuffled(run, _UPPER_LANES)
            for part in (run, upper):
                words = total, part, "f64x2.promote_low_f32x4", f"f64x2.{operation}"
                f.set_local(total, *words)

        with self._vectors():
            value = term(None).value
            words: tuple[str, ...] = value, neutral, "mask", "v128.bitselect"
            if identity == 0:
                words = value, "mask", "v128.and"
            if run_length == LANES:
                f.set_local(run, *words)
                add_run()
            else:
                f.set_local(run, run, *words, f"f32x4.{operation}")
                last = run_length - LANES
                with f.if_block("at", run_length - 1, "i32.and", last, "i32.eq"):
                    add_run()
                    f.set_local(run, neutral)
        if run_length != LANES:
            add_run()
        swapped = self._shuffled(total, _SWAPPED_HALVES)
        return lowering.emit_value(total, swapped, f"f64x2.{operation}")

    def _extreme(self, kind: str, term: Callable[[None], TypedValue]) -> str:
        """Emit the largest or smallest term of a row, NaN if one is; in each lane."""
        # Numbers by `pmax`, one instruction of processors, which passes over NaN.
        f, lowering = self.f, self.lowering
        infinity = float("-inf" if kind == "max" else "inf")
        best = lowering.emit_value(lowering.splat("F", infinity).value)
        nan_lanes = lowering.emit_value(lowering.splat("I", 0).value)
        with self._vectors(has_mask=False):
            value = term(None).value
            f.set_local(best, best, value, f"f32x4.p{kind}")
            f.set_local(nan_lanes, nan_lanes, value, value, "f32x4.ne", "v128.or")
        for lanes in (_SWAPPED_HALVES, _SWAPPED_PAIRS):
            f.set_local(best, best, self._shuffled(best, lanes), f"f32x4.p{kind}")
        with f.if_block(nan_lanes, "v128.any_true"):
            f.set_local(best, lowering.splat("F", float("nan")).value)
        return best

    def _shuffled(self, value: str, lanes: Sequence[int]) -> str:
        """Emit a vector of some lanes of another."""
        name = self.lowering.new_local()
        self.f.emit(value, value)
        self.f.shuffle_lanes(lanes)
        self.f.set_local(name)
        return name
