"""Functions that take one address: their arguments, 64 bits each, lie there.

What hands jobs to threads knows no signatures. Both halves are here: the text that
reads the arguments, and the array that holds them.
"""

from __future__ import annotations

import re
from ctypes import c_void_p, cast
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WORD: Final = 8
"""Bytes of an argument."""
_NAME = re.compile(r"void @(\w+)\((.*)\)")


def job_text(signature: str) -> str:
    """@NAME_job(ptr): the function of a signature, of arguments that lie in memory."""
    found = _NAME.fullmatch(signature)
    assert found is not None, signature
    name, given = found.groups()
    lines, arguments = [], []
    for at, one in enumerate(given.split(", ")):
        kind = one.split(" ")[0]
        stored = "double" if kind == "float" else kind
        lines.append(f"  %w{at} = getelementptr i64, ptr %job, i64 {at}")
        lines.append(f"  %a{at} = load {stored}, ptr %w{at}, align 8")
        value = f"%a{at}"
        if stored != kind:
            value = f"%n{at}"
            lines.append(f"  {value} = fptrunc double %a{at} to float")
        arguments.append(f"{kind} {value}")
    lines.append(f"  call void @{name}({', '.join(arguments)})")
    body = "\n".join(lines)
    return f"define void @{name}_job(ptr %job) {{\nentry:\n{body}\n  ret void\n}}\n"


def address_of(function: Any) -> int:
    """Where a function lies that Python calls by ctypes, as machine code calls it."""
    return cast(function, c_void_p).value or 0


def packed(*values: float) -> NDArray[np.int64]:
    """Whole numbers, addresses and floats as such a function reads them."""
    made: NDArray[np.int64] = np.empty(len(values), np.int64)
    floats: NDArray[Any] = made.view(np.float64)
    for at, value in enumerate(values):
        (floats if isinstance(value, float) else made)[at] = value
    return made
