"""The op suite of the package, one case at a time, as the check page asks for it.

The cases are those of `rlxweb smoke --quick` that need no engine to be listed. `plan`
names them, `check` runs one of them on a device and says how near it is to NumPy in
float64. What a right answer is, rlxweb.smoke decides.
"""

import math

import numpy as np

from rlxweb.backends.pool import pool
from rlxweb.devices.availability import open_async
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.op import registry
from rlxweb.smoke.answers import LOST, number
from rlxweb.smoke.case import checked_ops
from rlxweb.smoke.suite import page_cases
from rlxweb.smoke.verdict import check_case

OTHERS = {
    "special": "arithmetic",
    "chains": "fused chains",
    "graphs": "random graphs",
}
DOCS = {
    "arithmetic": "What a shader compiler may simplify, and must not: x - x, x * 0 …",
    "fused chains": "Ops that become one kernel together.",
    "random graphs": "Graphs grown by chance, the same on every engine.",
}
PLANNED = {}


def plan(args, buffers):
    """Every op with its cases, then what is of no one op, in the order they are run."""
    rows = {op.name: [] for op in checked_ops()}
    for case in page_cases():
        rows.setdefault(row_of(case), []).append(case)
    PLANNED.update(rows)
    return [one_row(name, cases) for name, cases in rows.items()]


def row_of(case):
    """The row of the page a case belongs to."""
    return case.op or OTHERS[case.family]


def one_row(name, cases):
    """A row as the page lists it."""
    is_op = name in registry
    op = registry.get(name) if is_op else None
    return {
        "name": name,
        "doc": op.doc.strip().split("\n")[0] if is_op else DOCS[name],
        "tolerance": in_words(op.tolerance) if is_op else "what the ops add up to",
        "samples": [one_case(case) for case in cases],
    }


def one_case(case):
    """A case as the page lists it."""
    inputs = case.inputs or inputs_of(case.make())
    counts = [math.prod(shape) for shape, _ in inputs]
    listed = {
        "inputs": [[list(shape), dtype] for shape, dtype in inputs],
        "attrs": {name: str(value) for name, value in case.attrs.items()},
        "note": case.note,
        "elements": 0 if 0 in counts else max(counts),
    }
    return listed if case.family == "samples" else listed | {"name": case.name}


def inputs_of(trial):
    """Shape and type of everything that is fed."""
    return [
        (array.shape, as_dtype(array.dtype).value) for array in trial.feeds.values()
    ]


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
    case = PLANNED[args["op"]][args["at"]]
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


def spoiled(result):
    """The result with its middle element changed: what a broken driver would give."""
    changed = result.copy()
    if changed.size:
        flat = changed.reshape(-1)
        at = flat.size // 2
        if changed.dtype.kind == "f":  # never the value it was, nor near it
            flat[at] = 2 * np.abs(flat[at]) + 1 if np.isfinite(flat[at]) else 0
        else:  # bfloat16 is a record of its bits: the highest below the exponent
            bit = 64 if changed.dtype.kind == "V" else 1
            flat.view(f"u{changed.itemsize}")[at] ^= bit
    return changed
