"""Sequence of the calls that run a plan on arrays, and the step after which each value
can be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.core.array_coercion import as_array
from rlxweb.engines.array_device_arrays import LibraryArray
from rlxweb.engines.protocol import read_only_view
from rlxweb.ir.graph import Node


class NodeCall(NamedTuple):
    """One node as a function call: the node, its function, and the ids of its operands.

    dead_values  values that nobody needs any more and that are worth letting go of
    dtype  the node's element type in the library's own words
    step   of the plan that it is in
    """

    node: Node
    function: Callable[..., LibraryArray]
    inputs: tuple[int, ...]
    dead_values: tuple[int, ...]
    dtype: object
    step: int


def call_custom_reference(reference: Callable[..., Any], *operands: Any) -> Any:
    """Call a custom op's reference on read-only operands.

    Errors   ValueError by NumPy, where it tries; DTypeError for masked results.
    """
    result = reference(*map(_read_only, operands))
    is_subclass = isinstance(result, np.ndarray) and type(result) is not np.ndarray
    return as_array(result, "the reference of a custom op") if is_subclass else result


def _read_only(operand: Any) -> Any:
    return read_only_view(operand) if isinstance(operand, np.ndarray) else operand


def dead_after_steps(steps: Sequence[Sequence[int]], keep: set[int]) -> list[list[int]]:
    """Return, for each step (given as the ids it reads), the values that no later step
    needs.
    """
    last_step = {value: step for step, reads in enumerate(steps) for value in reads}
    return [
        [i for i in dict.fromkeys(reads) if last_step[i] == step and i not in keep]
        for step, reads in enumerate(steps)
    ]
