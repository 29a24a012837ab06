"""Floats of 16 bits as floats of 32, and back, by the processor's own instructions."""

from __future__ import annotations

from typing import Final

from rlxweb.machine.jobs import job_text
from rlxweb.machine.text import SIZE, Shape, Value, Whole, Writer

FIELDS: Final = ("x", "out", "count", "each")
"""Of a job, 64 bits each: addresses of numbers, how many there are, and how many a
thread takes at once.
"""
_SIZES: Final = {**SIZE, "half": 2}


def halves_text(nbytes: int) -> str:
    """@widened(job, taken) and @narrowed(job, taken), for vectors of so many bytes.

    taken   where the threads that call one together count the numbers they took
    """
    shape = Shape("float", nbytes // 4)
    return "\n".join(
        (
            _converted("widened", shape, "half", "float", "fpext"),
            _converted("narrowed", shape, "float", "half", "fptrunc"),
        )
    )


def _converted(name: str, shape: Shape, given: str, made: str, how: str) -> str:
    signature = f"void @{name}(ptr %job, ptr %taken)"
    w = Writer(signature, shape)
    x, out, count, each = w.fields(FIELDS, FIELDS[:2]).values()

    def some(begin: Value) -> None:
        def vector(i: Whole) -> None:
            at, lanes = w.sum(begin, i), w.shape.lanes
            here = w.at(x, at, given)
            read, kept = f"<{lanes} x {given}>", f"<{lanes} x {made}>"
            one = w.let(f"load {read}, ptr {here}, align {_SIZES[given]}")
            other = w.let(f"{how} {read} {one} to {kept}")
            there = w.at(out, at, made)
            w.say(f"store {kept} {other}, ptr {there}, align {_SIZES[made]}")

        w.sweep(w.least(each, w.difference(count, begin)), vector)

    w.claimed("%taken", each, count, some)
    w.say("ret void")
    return w.text + job_text(signature)
