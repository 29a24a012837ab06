"""Padding by what is there, of few elements: where each comes from, worked out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlxweb.ir.op import Attrs, TensorType, Types, registry
from rlxweb.ir.shape import numel

Array = NDArray[Any]

_MOST: Final = 1 << 16
"""Elements of a result, whose places are kept with the node."""


def is_open(inputs: Types, out: TensorType, attrs: Attrs) -> bool:
    """Few elements, none of them a constant."""
    return attrs["mode"] != "constant" and 0 < out.numel <= _MOST


def pad(inputs: Types, out: TensorType, attrs: Attrs) -> Callable[..., Array]:
    """How a node is run: by the reference where it is not this way's."""
    reference, shape = registry.get("pad").reference, inputs[0].shape
    if not is_open(inputs, out, attrs):
        return partial(reference, np)
    # The reference says where they come from: it is asked to move their numbers.
    numbers = np.arange(numel(shape), dtype=np.intp).reshape(shape)
    return partial(_taken, reference(np, attrs, numbers))


def _taken(places: Array, attrs: Attrs, x: Array) -> Array:
    made: Array = np.take(x.reshape(-1), places)
    return made
