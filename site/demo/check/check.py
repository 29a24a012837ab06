"""The op suite of the package, one case at a time, as the check page asks for it.

`plan` lists every op and sample, `check` runs one of them on a device and says how near
it is to NumPy in float64. What a right answer is, rlxweb.runners.agreement decides.
"""

import math

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.devices.availability import open_async
from rlxweb.errors import DeviceLost, GpuTimeout
from rlxweb.ir.op import registry
from rlxweb.runners.agreement import case_of, check_case, checked_ops

LOST = (DeviceLost, GpuTimeout)


def plan(args, buffers):
    """Every op with its samples, in the order they are to be run."""
    return [one_op(op) for op in checked_ops()]


def one_op(op):
    """An op as the page lists it."""
    return {
        "name": op.name,
        "doc": op.doc.strip().split("\n")[0],
        "tolerance": in_words(op.tolerance),
        "samples": [one_sample(sample) for sample in op.samples],
    }


def one_sample(sample):
    """A sample as the page lists it."""
    return {
        "inputs": [[list(one.shape), str(one.dtype)] for one in sample.inputs],
        "attrs": {name: str(value) for name, value in sample.attrs.items()},
        "note": sample.note,
        "elements": sizes(sample),
    }


def sizes(sample):
    """Elements of the largest input; 0 as soon as one input is empty."""
    counts = [math.prod(one.shape) for one in sample.inputs]
    return 0 if 0 in counts else max(counts)


def in_words(tolerance):
    """`1e-05 of the value + 2e-06 of the largest`, or `exact`."""
    parts = []
    if tolerance.rtol:
        parts.append(f"{tolerance.rtol:.2g} of the value")
    if tolerance.atol:
        of = " of the largest" if tolerance.relative_to_peak else ""
        parts.append(f"{tolerance.atol:.2g}{of}")
    return " + ".join(parts) or "exact"


async def facts(args, buffers):
    """The device's row of the report, opened if it is not."""
    return (await open_async(args["device"])).as_json()


async def check(args, buffers):
    """Run one case; its verdict with the numbers behind it."""
    case = case_of(registry.get(args["op"]), args["at"])
    spoil = spoiled if args.get("spoil") else None
    try:
        backend = await pool.backend_async(args["device"])
    except LOST as error:
        return {"word": "wrong", "why": str(error), "lost": True}
    found = await check_case(case, backend, spoil)
    told = {
        "word": found.word,
        "why": found.why,
        "raised": type(found.raised).__name__ if found.raised else "",
        "lost": isinstance(found.raised, LOST),
        "ms": round((found.prepare_ns + found.run_ns) / 1e6, 3),
        "run_ms": round(found.run_ns / 1e6, 3),
    }
    return told | numbers(found.agreement)


def numbers(agreement):
    """What the comparison measured; {} when there was nothing to compare."""
    if agreement is None:
        return {}
    told = {
        "max_error": number(agreement.max_error),
        "share": number(agreement.share),
        "allowed": number(agreement.allowed),
        "wrong": agreement.wrong,
        "elements": agreement.size,
    }
    if agreement.first is not None:
        at, got, want = agreement.first
        told["first"] = {"at": list(at), "got": number(got), "want": number(want)}
    return told


def number(value):
    """A float that JSON can hold; NaN and infinity by name."""
    value = float(value)
    return value if math.isfinite(value) else str(value)


def spoiled(result):
    """The result with its middle element changed: what a broken driver would give."""
    changed = result.copy()
    if changed.size:
        flat = changed.reshape(-1)
        at = flat.size // 2
        if changed.dtype.kind == "f":  # never the value it was, nor near it
            flat[at] = 2 * np.abs(flat[at]) + 1 if np.isfinite(flat[at]) else 0
        else:
            flat[at] ^= np.array(1, changed.dtype)
    return changed
