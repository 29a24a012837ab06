"""The vocabulary: one record per op, declared once, in families.

The families register themselves when they are loaded; `vocabulary.py` loads all. Not
done here: a thread that imports one of them while another loads all would wait for it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlxweb.ops.listing import Vocabulary

FAMILIES = (
    "leaf",
    "elementwise",
    "cast",
    "bitcast",
    "activation",
    "functions",
    "gates",
    "remainder",
    "logic",
    "movement",
    "identity",
    "slices",
    "remapped",
    "reduce",
    "extremes",
    "select",
    "sorting",
    "nonzero",
    "suppression",
    "roi",
    "deform",
    "picking",
    "linalg",
    "solve",
    "triangular",
    "conv",
    "conv_transpose",
    "pool",
    "resize",
    "grid_sample",
    "norm",
    "nn",
    "add_norm",
    "rotary",
    "glu",
    "lora",
    "grouped",
    "quantize",
    "integer_products",
    "packed_weights",
    "linear_scan",
    "linear_recurrence",
    "recurrent",
    "selective_scan",
    "spectral",
    "mel",
    "welch",
    "segments",
)


class _Callable(ModuleType):
    """A module that is also the function of its name: `rlxweb.ops()`."""

    def __call__(self, word: str = "") -> Vocabulary:
        """See `rlxweb.ops.listing.ops`."""
        from rlxweb.ops.listing import ops

        return ops(word)


sys.modules[__name__].__class__ = _Callable
