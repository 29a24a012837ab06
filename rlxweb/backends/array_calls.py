"""A plan over arrays as calls in order, and how long each value is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlxweb.backends.array_residents import OwnArray
from rlxweb.backends.protocol import sealed
from rlxweb.given import array_of
from rlxweb.ir.graph import Node


class Call(NamedTuple):
    """One node as a function call: what to call, on which values, to which.

    drop   values that nobody needs any more and that are worth letting go of
    dtype  the node's element type in the library's own words
    step   of the plan that it is in
    """

    node: Node
    function: Callable[..., OwnArray]
    inputs: tuple[int, ...]
    drop: tuple[int, ...]
    dtype: object
    step: int


def by_strangers(reference: Callable[..., Any], *given: Any) -> Any:
    """A custom op's result; its operands, which others read too, cannot be written.

    Errors   ValueError by NumPy, where it tries; DTypeError for masked results.
    """
    made = reference(*map(_sealed, given))
    is_subclass = isinstance(made, np.ndarray) and type(made) is not np.ndarray
    return array_of(made, "the reference of a custom op") if is_subclass else made


def _sealed(one: Any) -> Any:
    return sealed(one) if isinstance(one, np.ndarray) else one


def order_of_release(steps: Sequence[Sequence[int]], keep: set[int]) -> list[list[int]]:
    """For each step (ids it reads), the values no later step needs."""
    last = {value: at for at, reads in enumerate(steps) for value in reads}
    return [
        [i for i in dict.fromkeys(reads) if last[i] == at and i not in keep]
        for at, reads in enumerate(steps)
    ]
