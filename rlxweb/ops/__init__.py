"""Built-in ops: one record per op, declared once, grouped in families.

The families register themselves when they are loaded; `register_builtin_ops.py` loads
all. Not done here: a thread that imports one of them while another loads all would wait
for it.
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
    "unary_math",
    "parametric_activation",
    "binary",
    "logic",
    "data_movement",
    "identity",
    "slice_and_windows",
    "pad_tile_roll",
    "reduce",
    "argminmax",
    "gather_topk_scan",
    "sorting",
    "nonzero",
    "non_max_suppression",
    "roi_align",
    "deform_conv",
    "gather_scatter",
    "matmul",
    "linear_systems",
    "triangular",
    "conv",
    "conv_transpose",
    "pooling",
    "resize",
    "grid_sample",
    "norm",
    "attention",
    "add_norm",
    "rotary",
    "glu",
    "lora",
    "grouped_matmul",
    "quantize",
    "integer_matmul_conv",
    "quantized_matmul",
    "linear_scan",
    "linear_recurrence",
    "recurrent",
    "selective_scan",
    "spectral",
    "mel",
    "welch",
    "segment_spectra",
)


class _CallableModule(ModuleType):
    """Module that is also a function: calling `rlxweb.ops()` lists the ops."""

    def __call__(self, word: str = "") -> Vocabulary:
        """Return the table of ops; see `rlxweb.ops.listing.ops`."""
        from rlxweb.ops.listing import ops

        return ops(word)


sys.modules[__name__].__class__ = _CallableModule
