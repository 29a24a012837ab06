"""Softmax and norms along lines of floats as functions of WebAssembly.

A line is gone through two or three times, four floats at once; the last four of it may
overlap those before, and what was counted there counts no more. Sums are of runs, and
the runs of each other, so that long lines lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rlxweb.backends.cpu_region_text import library_for
from rlxweb.machine.trees import Of
from rlxweb.machine.wasm import Function, module
from rlxweb.machine.wasm_lowering import NEEDED, WasmLowering

ARGUMENTS: Final = ("x", "out", "rows", "n", "gamma", "beta", "room")
"""Addresses and numbers: so many lines of n floats, four at least, out not where x is.
`room` holds eps, three floats of nothing, and four more that are written over.
"""
_RUN: Final = 128
_LANES: Final = 4


def lines_module() -> bytes:
    """A function for each of `OPS`."""
    return module([_function(name, body) for name, body in OPS.items()])


def _function(name: str, body: Callable[[WasmLowering], None]) -> Function:
    f = Function(name, *ARGUMENTS)
    f.local("i32", "at", "first", "last")
    f.local("v128", "mask", "count", "run", "total", "middle", "v", "factor")
    to = WasmLowering(f, library_for(NEEDED))
    f.put("last", "n", _LANES, "i32.sub")
    f.put("count", "n", "i32x4.splat", "f32x4.convert_i32x4_s")
    with f.repeated("rows", 0, "i32.eq"):
        body(to)
        for row in ("x", "out"):
            f.put(row, row, "n", 4, "i32.mul", "i32.add")
        f.put("rows", "rows", 1, "i32.sub")
    return f


@contextmanager
def _fours(to: WasmLowering) -> Iterator[None]:
    """Of a line: `first` is where four floats begin, `mask` those that are new."""
    f, lanes = to.f, to.fresh()
    f.lanes(lanes, range(_LANES))
    f.put("at", 0)
    with f.repeated("at", "n", "i32.ge_u"):
        f.put("first", "at", "last", "at", "last", "i32.lt_u", "select")
        f.put("mask", lanes, "at", "first", "i32.sub", "i32x4.splat", "i32x4.ge_s")
        yield
        f.put("at", "at", _LANES, "i32.add")


def _place(to: WasmLowering, row: str) -> None:
    to.f.say(row, "first", 4, "i32.mul", "i32.add")


def _loaded(to: WasmLowering, row: str, name: str = "v") -> None:
    _place(to, row)
    to.f.move("v128.load")
    to.f.put(name)


def _stored(to: WasmLowering, *words: str) -> None:
    _place(to, "out")
    to.f.say(*words)
    to.f.move("v128.store")


def _everywhere(to: WasmLowering, name: str, how: str) -> None:
    """The lanes of a vector in one number, in each of them."""
    to.f.say("room", name)
    to.f.move("v128.store", 16)
    for lane in range(_LANES):
        to.f.say("room")
        to.f.move("v128.load32_splat", 16 + 4 * lane)
        to.f.put(name, *(() if lane == 0 else (name, how)))


@contextmanager
def _summed(to: WasmLowering) -> Iterator[Callable[[str], None]]:
    """`total` is the sum of what is given to the function for each four of a line."""
    f, none = to.f, to.splat("F", 0.0).value
    for one in ("run", "total"):
        f.put(one, none)

    def add(name: str) -> None:
        f.put("run", "run", name, "mask", "v128.and", "f32x4.add")

    with _fours(to):
        yield add
        with f.only_if("at", _RUN - 1, "i32.and", _RUN - _LANES, "i32.eq"):
            f.put("total", "total", "run", "f32x4.add")
            f.put("run", none)
    f.put("total", "total", "run", "f32x4.add")
    _everywhere(to, "total", "f32x4.add")


def _softmax(to: WasmLowering) -> None:
    f = to.f
    f.put("middle", to.splat("F", float("-inf")).value)
    with _fours(to):
        # What a NaN does shows where it is subtracted from.
        _loaded(to, "x")
        f.put("middle", "middle", "v", "f32x4.pmax")
    _everywhere(to, "middle", "f32x4.pmax")
    with _summed(to) as add:
        _loaded(to, "x")
        f.put("v", "v", "middle", "f32x4.sub")
        e = to.call("precise_exp", [Of("F", "v")])
        assert isinstance(e, Of)
        _stored(to, e.value)
        add(e.value)
    f.put("factor", to.splat("F", 1.0).value, "total", "f32x4.div")
    with _fours(to):
        _loaded(to, "out")
        _stored(to, "v", "factor", "f32x4.mul", "v", "mask", "v128.bitselect")


def _weights(to: WasmLowering) -> None:
    """The softmax of x times a factor, in the place of eps, and what is added to it:
    `gamma` lies key by key, from line to line `beta` bytes further. x is written over.
    """
    f = to.f
    f.say("room")
    f.move("v128.load32_splat")
    f.put("factor")
    f.put("middle", to.splat("F", float("-inf")).value)
    with _fours(to):
        _loaded(to, "gamma", "run")
        _loaded(to, "x")
        f.put("v", "v", "factor", "f32x4.mul", "run", "f32x4.add")
        _stored(to, "v")
        f.put("middle", "middle", "v", "f32x4.pmax")
    _everywhere(to, "middle", "f32x4.pmax")
    with _summed(to) as add:
        _loaded(to, "out")
        f.put("v", "v", "middle", "f32x4.sub")
        e = to.call("precise_exp", [Of("F", "v")])
        assert isinstance(e, Of)
        _place(to, "x")
        f.say(e.value)
        f.move("v128.store")
        add(e.value)
    f.put("factor", to.splat("F", 1.0).value, "total", "f32x4.div")
    with _fours(to):
        _loaded(to, "x")
        _stored(to, "v", "factor", "f32x4.mul")
    f.put("gamma", "gamma", "beta", "i32.add")


def weights_function() -> Function:
    """`weights`: what attention makes of the scores of some queries."""
    return _function("weights", _weights)


def _layer_norm(to: WasmLowering) -> None:
    with _summed(to) as add:
        _loaded(to, "x")
        add("v")
    to.f.put("middle", "total", "count", "f32x4.div")
    _scaled(to)


def _rms_norm(to: WasmLowering) -> None:
    to.f.put("middle", to.splat("F", 0.0).value)
    _scaled(to)


def _scaled(to: WasmLowering) -> None:
    """What is off the middle, by its root mean square; scaled and shifted."""
    f = to.f
    with _summed(to) as add:
        _loaded(to, "x")
        f.put("v", "v", "middle", "f32x4.sub")
        f.put("v", "v", "v", "f32x4.mul")
        add("v")
    f.say("total", "count", "f32x4.div", "room")
    f.move("v128.load32_splat")
    f.put("factor", "f32x4.add", "f32x4.sqrt")
    with _fours(to):
        _loaded(to, "x")
        f.put("v", "v", "middle", "f32x4.sub", "factor", "f32x4.div")
        for row, how in (("gamma", "f32x4.mul"), ("beta", "f32x4.add")):
            _loaded(to, row, "run")
            f.put("v", "v", "run", how)
        _stored(to, "v")


OPS: Final[dict[str, Callable[[WasmLowering], None]]] = {
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
