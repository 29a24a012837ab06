"""WebAssembly code of a row kernel, as `row_reduction_llvm.py` writes it for
processors, with the same arguments.

A row is walked four elements at once, eight where they are reduced; the last four may
overlap those before, and what was counted there counts no more. Sums are in double
precision; terms of one sign are added in single precision for a short run, where
nothing cancels.
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
from rlxweb.codegen.row_kernel import JOB_WORDS, RowKernel
from rlxweb.codegen.row_kernel_writer import RowKernelWriter, kernel_library
from rlxweb.codegen.wasm_builder import WasmFunctionBuilder, encode_module
from rlxweb.codegen.wgsl_to_instructions import TypedValue
from rlxweb.codegen.wgsl_to_wasm import REQUIRED_INCLUDES, WasmLowering
from rlxweb.core.errors import Unsupported

RUN_LENGTH: Final = 128
"""Elements that are added in single precision before their sum is widened; a power of
two.
"""
_UNROLLED: Final = 2
"""Vectors of terms that go side by side."""
_UPPER_LANES, _SWAPPED_HALVES, _SWAPPED_PAIRS = (2, 3, 2, 3), (2, 3, 0, 1), (1, 0, 3, 2)


def row_kernel_module(kernel: RowKernel, is_scalar: Sequence[bool]) -> bytes:
    """Return a module with @rows_job(job), which computes rows of four elements at
    least; its job is that of native code, and it claims all rows.

    is_scalar  which reads are one number for a whole row
    Errors   Unsupported.
    """
    return encode_module([row_kernel_function(kernel, is_scalar)])


def row_kernel_function(
    kernel: RowKernel, is_scalar: Sequence[bool]
) -> WasmFunctionBuilder:
    """Return @rows_job alone, for a module with other functions."""
    return _WasmRowKernelWriter(kernel, is_scalar).function()


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
        f.declare_locals("i32", "outer", "n", "at", "first", "last", "paired")
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
    def _vectors(
        self, *, start: str | int = 0, has_mask: bool = True
    ) -> Iterator[None]:
        """Emit a loop over the vectors of the row, from an element on."""
        f = self.f
        f.set_local("at", start)
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
        lowering = self.lowering
        if kind == "mean":
            count = lowering.emit_value("n", "i32x4.splat", "f64x2.convert_low_i32x4_u")
            total = lowering.emit_value(total, count, "f64x2.div")
        result = self._rounded(total)
        if kind != "prod":
            widened = lowering.emit_value(result, "f64x2.promote_low_f32x4")
            lost = lowering.emit_value(total, widened, "f64x2.sub")
            # Infinity lost nothing, and less itself it is NaN.
            zero = lowering.emit_value(lost, lost, "f64x2.sub")
            is_finite = lowering.emit_value(zero, zero, "f64x2.eq")
            lost = lowering.emit_value(lost, is_finite, "v128.and")
            self.rounding_errors[result] = TypedValue("F", self._rounded(lost))
        return TypedValue("F", result)

    def _rounded(self, number: str) -> str:
        """Emit a number of double precision as a float in each lane."""
        single = self.lowering.emit_value(number, "f32x4.demote_f64x2_zero")
        return self._shuffled(single, (0, 0, 0, 0))

    def _for_each_term(
        self, term: Callable[[None], TypedValue], take: Callable[[str, int, bool], None]
    ) -> None:
        """Emit a loop over pairs of vectors of terms, and one over those left.

        take   is told a vector, whether it is the first or the second of its pair, and
               whether only the lanes of `mask` count
        """
        f, step = self.f, _UNROLLED * LANES
        f.set_local("at", 0)
        f.set_local("paired", "n", -step, "i32.and")
        with f.loop_until("at", "paired", "i32.ge_u"):
            for k in range(_UNROLLED):
                f.set_local("first", "at", k * LANES, "i32.add")
                take(term(None).value, k, False)
            f.set_local("at", "at", step, "i32.add")
        with self._vectors(start="paired"):
            take(term(None).value, 0, True)

    def _accumulate(
        self,
        operation: str,
        identity: float,
        term: Callable[[None], TypedValue],
        run_length: int,
    ) -> str:
        """Emit a sum or product of a row's terms; return two lanes of double precision
        with the result in each.

        run_length  terms that are combined in single precision before; LANES: none
        """
        f, lowering = self.f, self.lowering
        neutral = lowering.splat("F", identity).value
        # One for each half of each vector: an addition waits for the one before.
        totals = [
            lowering.emit_value(neutral, "f64x2.promote_low_f32x4")
            for _ in range(2 * _UNROLLED)
        ]
        runs = [lowering.emit_value(neutral) for _ in range(_UNROLLED)]

        def widen(value: str, k: int) -> None:
            self._accumulate_widened(totals[2 * k : 2 * k + 2], value, operation)

        def add_runs() -> None:
            for k, run in enumerate(runs):
                widen(run, k)
                f.set_local(run, neutral)

        def take(value: str, k: int, is_masked: bool) -> None:
            if is_masked:
                words = value, neutral, "mask", "v128.bitselect"
                value = lowering.emit_value(*words)
            if run_length == LANES:
                widen(value, k)
                return
            f.set_local(runs[k], runs[k], value, f"f32x4.{operation}")
            if k == _UNROLLED - 1:
                last = run_length - _UNROLLED * LANES
                with f.if_block("at", run_length - 1, "i32.and", last, "i32.eq"):
                    add_runs()

        self._for_each_term(term, take)
        if run_length != LANES:
            add_runs()
        total = totals[0]
        for other in totals[1:]:
            f.set_local(total, total, other, f"f64x2.{operation}")
        swapped = self._shuffled(total, _SWAPPED_HALVES)
        return lowering.emit_value(total, swapped, f"f64x2.{operation}")

    def _accumulate_widened(
        self, totals: Sequence[str], value: str, operation: str
    ) -> None:
        """Emit the lower and the upper half of a vector being added to two totals."""
        halves = value, self._shuffled(value, _UPPER_LANES)
        for total, half in zip(totals, halves, strict=True):
            words = total, half, "f64x2.promote_low_f32x4", f"f64x2.{operation}"
            self.f.set_local(total, *words)

    def _extreme(self, kind: str, term: Callable[[None], TypedValue]) -> str:
        """Emit the largest or smallest term of a row, NaN if one is; in each lane."""
        # Numbers by `pmax`, one instruction of processors, which passes over NaN. Lanes
        # that were seen before change nothing.
        f, lowering = self.f, self.lowering
        infinity = lowering.splat("F", float("-inf" if kind == "max" else "inf")).value
        bests = [lowering.emit_value(infinity) for _ in range(_UNROLLED)]
        nan_lanes = lowering.emit_value(lowering.splat("I", 0).value)

        def take(value: str, k: int, is_masked: bool) -> None:
            f.set_local(bests[k], bests[k], value, f"f32x4.p{kind}")
            f.set_local(nan_lanes, nan_lanes, value, value, "f32x4.ne", "v128.or")

        self._for_each_term(term, take)
        best, *others = bests
        for other in others:
            f.set_local(best, best, other, f"f32x4.p{kind}")
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
