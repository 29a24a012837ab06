"""An elementwise region as one function of WebAssembly, from what its ops declare.

As `cpu_region_text.py` says it for processors, with the same arguments: in a browser's
Python regions are called the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlxweb.backends.cpu_region_text import (
    declared,
    library_for,
    stored_as,
    value_of,
)
from rlxweb.errors import Unsupported
from rlxweb.ir.graph import Graph
from rlxweb.machine.jobs import WORD
from rlxweb.machine.trees import Of
from rlxweb.machine.wasm import VECTOR, Function, module
from rlxweb.machine.wasm_lowering import NEEDED, WasmLowering

LANES = VECTOR // 4
_SIZE = {"F": 4, "I": 4, "U": 4, "B": 1}


def region_module(
    graph: Graph,
    ids: Sequence[int],
    reads: Sequence[int],
    spread: Sequence[bool],
    *,
    shared: bool = False,
) -> bytes:
    """@region(job, outer, inner): so many rows of so many elements, four at least.
    @region_job(job): the same of the 64-bit words job, outer and inner.

    job      64-bit addresses of the output and of each read, then their bytes from row
             to row
    reads    the nodes that are read
    spread   which of them are one number for a whole row
    shared   for a memory that several threads have
    Errors   Unsupported.
    """
    nodes = [graph.node(i) for i in ids]
    uses = dict.fromkeys(use for node in nodes for use in declared(node).uses)
    f = Function("region", "job", "outer", "inner")
    to = WasmLowering(f, library_for((*uses, *NEEDED)))
    kinds = [stored_as(graph.node(i)) for i in (ids[-1], *reads)]
    if "H" in kinds:
        raise Unsupported("compile a region", "WebAssembly has no halves")
    rows = [f"row{k}" for k in range(len(kinds))]
    steps = [f"step{k}" for k in range(len(kinds))]
    f.local("i32", *rows, *steps, "at", "first", "last")
    for k, name in enumerate((*rows, *steps)):
        f.say("job")
        f.move("i32.load", WORD * k)
        f.put(name)
    f.put("last", "inner", LANES, "i32.sub")
    with f.repeated("outer", "i32.eqz"):
        fixed = {
            i: _one(to, kind, row)
            for i, kind, row, is_one in zip(
                reads, kinds[1:], rows[1:], spread, strict=True
            )
            if is_one
        }
        f.put("at", 0)
        with f.repeated("at", "inner", "i32.ge_u"):
            # What is left of a row is done with some of what was done before.
            f.put("first", "at", "last", "at", "last", "i32.lt_u", "select")
            loaded = {
                i: _load(to, kind, row)
                for i, kind, row, is_one in zip(
                    reads, kinds[1:], rows[1:], spread, strict=True
                )
                if not is_one
            }
            _store(to, value_of(to, graph, nodes, {**fixed, **loaded}), rows[0])
            f.put("at", "at", LANES, "i32.add")
        for row, step in zip(rows, steps, strict=True):
            f.put(row, row, step, "i32.add")
        f.put("outer", "outer", 1, "i32.sub")
    return module([f, _job()], shared=shared)


def _job() -> Function:
    """The first function of the module, as one of a job."""
    f = Function("region_job", "job")
    for at in range(3):
        f.say("job")
        f.move("i32.load", WORD * at)
    f.call(0)
    return f


def _place(to: WasmLowering, kind: str, row: str) -> None:
    to.f.say(row, "first", _SIZE[kind], "i32.mul", "i32.add")


def _load(to: WasmLowering, kind: str, row: str) -> Of:
    _place(to, kind, row)
    name = to.fresh()
    if kind != "B":
        to.f.move("v128.load")
        to.f.put(name)
        return Of(kind, name)
    to.f.move("v128.load32_zero")
    wide = "i16x8.extend_low_i8x16_u", "i32x4.extend_low_i16x8_u"
    to.f.put(name, *wide, to.splat("I", 0).value, "i32x4.ne")
    return Of(kind, name)


def _one(to: WasmLowering, kind: str, row: str) -> Of:
    name = to.fresh()
    to.f.say(row)
    if kind != "B":
        to.f.move("v128.load32_splat")
        to.f.put(name)
        return Of(kind, name)
    to.f.move("i32.load8_u")
    to.f.put(name, "i32x4.splat", to.splat("I", 0).value, "i32x4.ne")
    return Of(kind, name)


def _store(to: WasmLowering, made: Of, row: str) -> None:
    value = made.value
    if made.kind == "B":  # a byte each, side by side
        ones = to.let(value, to.splat("I", 1).value, "v128.and")
        halves = to.let(ones, ones, "i16x8.narrow_i32x4_u")
        value = to.let(halves, halves, "i8x16.narrow_i16x8_u")
    _place(to, made.kind, row)
    to.f.say(value)
    if made.kind == "B":
        to.f.store_lane()
    else:
        to.f.move("v128.store")
