"""Calling convention of native jobs: functions of one address, at which their arguments
lie, 64 bits each.

What hands jobs to threads knows no signatures. Both halves are here: the text that
reads the arguments, and the array that holds them.
"""

from __future__ import annotations

import re
from ctypes import addressof, c_char, c_void_p, cast
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.codegen.wasm_builder import IN_BROWSER

WORD_NBYTES: Final = 8
"""Bytes of an argument."""
_SIGNATURE_PATTERN = re.compile(r"void @(\w+)\((.*)\)")


def job_wrapper_llvm_ir(signature: str) -> str:
    """Return the LLVM IR of @NAME_job(ptr), which loads the arguments of a signature
    from memory and calls it.
    """
    match = _SIGNATURE_PATTERN.fullmatch(signature)
    assert match is not None, signature
    name, parameters = match.groups()
    lines, arguments = [], []
    for index, parameter in enumerate(parameters.split(", ")):
        value_type = parameter.split(" ")[0]
        stored_type = "double" if value_type == "float" else value_type
        lines.append(f"  %w{index} = getelementptr i64, ptr %job, i64 {index}")
        lines.append(f"  %a{index} = load {stored_type}, ptr %w{index}, align 8")
        value = f"%a{index}"
        if stored_type != value_type:
            value = f"%n{index}"
            lines.append(f"  {value} = fptrunc double %a{index} to float")
        arguments.append(f"{value_type} {value}")
    lines.append(f"  call void @{name}({', '.join(arguments)})")
    body = "\n".join(lines)
    return f"define void @{name}_job(ptr %job) {{\nentry:\n{body}\n  ret void\n}}\n"


def function_address(function: Any) -> int:
    """Return the address of a ctypes function, as native code calls it."""
    return cast(function, c_void_p).value or 0


def array_address(array: NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    if IN_BROWSER:  # the other ways take five times as long there
        return array.ctypes.data
    if array.flags.writeable and array.flags.c_contiguous and array.size:
        # A third of the time that the other way takes, which one row would feel.
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def pack_arguments(*values: float) -> NDArray[np.int64]:
    """Pack integers, addresses and floats as 64-bit words for a job function."""
    words: NDArray[np.int64] = np.empty(len(values), np.int64)
    floats: NDArray[Any] = words.view(np.float64)
    for index, value in enumerate(values):
        (floats if isinstance(value, float) else words)[index] = value
    return words
