"""Evaluation of one node by its op's NumPy reference, as an array of the node's own
dtype.

References compute numbers of bfloat16 in float32, as NumPy has none of them; here they
are widened before and rounded after.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.core.bfloat16 import from_float32, widen_bfloat16
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.op import registry

Array = npt.NDArray[Any]


def evaluate_reference(node: Node, arrays: Iterable[Array]) -> Array:
    """Return the value of a node whose operands are known.

    It is as the reference has it, but for bfloat16, which is of its own dtype.
    """
    reference = registry.get(node.op).reference
    result = np.asarray(reference(np, node.attrs, *map(widen_bfloat16, arrays)))
    needs_rounding = node.type.dtype is DType.BF16 and result.dtype.kind == "f"
    return from_float32(result) if needs_rounding else result
