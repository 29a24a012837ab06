"""Op suite of the package, run one case at a time for the check page.

The cases are those of `rlxweb smoke --quick` that need no engine to be listed. `plan`
names them, `check` runs one of them on a device and says how near it is to NumPy in
float64. What a right answer is, rlxweb.smoke decides.
"""

import math

import numpy as np

from rlxweb.engines.pool import pool
from rlxweb.ir.dtype import as_dtype
from rlxweb.ir.op import registry
from rlxweb.select.availability import open_async
from rlxweb.smoke.case import checked_ops
from rlxweb.smoke.result_rows import DEVICE_LOST_ERRORS, json_number
from rlxweb.smoke.suite import page_cases
from rlxweb.smoke.verdict import check_case

FAMILY_ROWS = {
    "special": "arithmetic",
    "chains": "fused chains",
    "graphs": "random graphs",
}
FAMILY_DOCS = {
    "arithmetic": "Expressions that shader compilers must not simplify: x - x, x * 0 …",
    "fused chains": "Ops that are fused into one kernel.",
    "random graphs": "Randomly generated graphs, the same on every engine.",
}
PLANNED_CASES = {}


def plan(args, buffers):
    """List every op with its cases, then the cases of no single op, in the order they
    are run.
    """
    rows = {op.name: [] for op in checked_ops()}
    for case in page_cases():
        rows.setdefault(row_name(case), []).append(case)
    PLANNED_CASES.update(rows)
    return [row_as_json(name, cases) for name, cases in rows.items()]


def row_name(case):
    """Return the name of the page's row that a case belongs to."""
    return case.op or FAMILY_ROWS[case.family]


def row_as_json(name, cases):
    """Describe a row for the page."""
    is_op = name in registry
    op = registry.get(name) if is_op else None
    return {
        "name": name,
        "doc": op.doc.strip().split("\n")[0] if is_op else FAMILY_DOCS[name],
        "tolerance": tolerance_text(op.tolerance)
        if is_op
        else "the sum of the tolerances of the ops",
        "samples": [case_as_json(case) for case in cases],
    }


def case_as_json(case):
    """Describe a case for the page."""
    inputs = case.inputs or feed_types(case.prepare())
    counts = [math.prod(shape) for shape, _ in inputs]
    entry = {
        "inputs": [[list(shape), dtype] for shape, dtype in inputs],
        "attrs": {name: str(value) for name, value in case.attrs.items()},
        "note": case.note,
        "elements": 0 if 0 in counts else max(counts),
    }
    return entry if case.family == "samples" else entry | {"name": case.name}


def feed_types(prepared):
    """Return shape and dtype of each feed."""
    return [
        (array.shape, as_dtype(array.dtype).value) for array in prepared.feeds.values()
    ]


def tolerance_text(tolerance):
    """Describe a tolerance: `1e-05 of the value + 2e-06 of the largest`, or `exact`."""
    parts = []
    if tolerance.rtol:
        parts.append(f"{tolerance.rtol:.2g} of the value")
    if tolerance.atol:
        unit = " of the largest" if tolerance.relative_to_peak else ""
        parts.append(f"{tolerance.atol:.2g}{unit}")
    return " + ".join(parts) or "exact"


async def facts(args, buffers):
    """Return the device's row of the report, and open the device if it is not open."""
    return (await open_async(args["device"])).as_json()


async def check(args, buffers):
    """Run one case, and return its verdict with the numbers behind it."""
    case = PLANNED_CASES[args["op"]][args["at"]]
    corrupt = corrupt_result if args.get("spoil") else None
    try:
        engine = await pool.engine_async(args["device"])
    except DEVICE_LOST_ERRORS as error:
        return {"word": "wrong", "why": str(error), "lost": True}
    verdict = await check_case(case, engine, corrupt)
    answer = {
        "word": verdict.word,
        "why": verdict.why,
        "raised": type(verdict.error).__name__ if verdict.error else "",
        "lost": isinstance(verdict.error, DEVICE_LOST_ERRORS),
        "ms": round((verdict.prepare_ns + verdict.run_ns) / 1e6, 3),
        "run_ms": round(verdict.run_ns / 1e6, 3),
    }
    return answer | comparison_as_json(verdict.comparison)


def comparison_as_json(comparison):
    """Return the numbers of the comparison; {} when there was nothing to compare."""
    if comparison is None:
        return {}
    answer = {
        "max_error": json_number(comparison.max_error),
        "share": json_number(comparison.error_fraction),
        "allowed": json_number(comparison.allowance),
        "wrong": comparison.wrong_count,
        "elements": comparison.size,
    }
    if comparison.first_wrong is not None:
        at, got, want = comparison.first_wrong
        answer["first"] = {
            "at": list(at),
            "got": json_number(got),
            "want": json_number(want),
        }
    return answer


def corrupt_result(result):
    """Return the result with its middle element changed, as a broken driver would give
    it.
    """
    corrupted = result.copy()
    if corrupted.size:
        flat = corrupted.reshape(-1)
        at = flat.size // 2
        if corrupted.dtype.kind == "f":  # never the value it was, nor near it
            flat[at] = 2 * np.abs(flat[at]) + 1 if np.isfinite(flat[at]) else 0
        else:  # bfloat16 is a record of its bits: the highest below the exponent
            bit = 64 if corrupted.dtype.kind == "V" else 1
            flat.view(f"u{corrupted.itemsize}")[at] ^= bit
    return corrupted
