"""Built-in ops: one record per op, declared once, grouped in families.

A family is a folder, whose `__init__.py` lists its files. `op.py` and its neighbours
declare ops, `methods.py` adds methods to Graph and `vjp.py` has gradients. `wgsl` plans
kernels for GPUs and `cpu` has kernels for processors: each is one file, or a folder
of several.

Modules register their ops when they are loaded; `register_builtin_ops.py` loads all.
This file loads none, as a thread that imports one module would wait for another thread
that loads all.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlxweb.ops.listing import Vocabulary

OP_MODULES = (
    "leaf.op",
    "elementwise.op",
    "elementwise.cast",
    "elementwise.bitcast",
    "elementwise.activation",
    "elementwise.unary_math",
    "elementwise.parametric_activation",
    "elementwise.division",
    "elementwise.logic",
    "layout.op",
    "layout.identity",
    "layout.slice_and_windows",
    "layout.pad_tile_roll",
    "reduce.op",
    "reduce.argminmax",
    "gather.op",
    "sort.topk",
    "sort.op",
    "sort.nonzero",
    "vision.non_max_suppression",
    "vision.roi_align",
    "conv.deform",
    "gather.scatter",
    "matmul.op",
    "linalg.op",
    "linalg.triangular",
    "conv.op",
    "conv.transpose",
    "pool.op",
    "vision.resize",
    "vision.grid_sample",
    "norm.op",
    "attention.op",
    "norm.add_norm",
    "attention.rotary",
    "elementwise.glu",
    "matmul.lora",
    "matmul.grouped",
    "quantized.quantize",
    "quantized.integer_matmul_conv",
    "quantized.matmul",
    "recurrent.linear_scan",
    "recurrent.linear_recurrence",
    "recurrent.op",
    "recurrent.selective_scan",
    "fft.op",
    "fft.mel",
    "fft.frames_stft",
    "welch.op",
    "welch.segment_spectra",
    "attention.methods",
    "attention.rotary_methods",
    "conv.methods",
    "elementwise.methods",
    "fft.methods",
    "gather.methods",
    "layout.methods",
    "layout.pad_tile_roll_methods",
    "leaf.methods",
    "linalg.methods",
    "matmul.methods",
    "norm.methods",
    "pool.methods",
    "quantized.methods",
    "quantized.packed_methods",
    "recurrent.methods",
    "reduce.methods",
    "sort.methods",
    "vision.detection_methods",
    "vision.methods",
)
"""Modules below `rlxweb.ops` that declare ops, in the order of the registry, and then
those that declare methods of Graph.
"""
FAMILIES = tuple(dict.fromkeys(name.partition(".")[0] for name in OP_MODULES))
"""Folders of `rlxweb.ops`: the families, as the manual lists them."""


class _CallableModule(ModuleType):
    """Module that is also a function: calling `rlxweb.ops()` lists the ops."""

    def __call__(self, word: str = "") -> Vocabulary:
        """Return the table of ops; see `rlxweb.ops.listing.ops`."""
        from rlxweb.ops.listing import ops

        return ops(word)


sys.modules[__name__].__class__ = _CallableModule
