"""The value of a node by its op's reference, as NumPy arrays of the node's own type.

References compute numbers of bfloat16 in float32, as NumPy has none of them; here they
are widened before and rounded after.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from rlxweb.bfloat16 import from_float32, held
from rlxweb.ir.dtype import DType
from rlxweb.ir.graph import Node
from rlxweb.ir.op import registry

Array = npt.NDArray[Any]


def by_reference(node: Node, arrays: Iterable[Array]) -> Array:
    """The value of a node whose operands are known.

    It is as the reference has it, but for bfloat16, which is of its own dtype.
    """
    reference = registry.get(node.op).reference
    made = np.asarray(reference(np, node.attrs, *map(held, arrays)))
    is_wide = node.type.dtype is DType.BF16 and made.dtype.kind == "f"
    return from_float32(made) if is_wide else made
