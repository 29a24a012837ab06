"""NaN, infinity, zeros of both signs and ties, past the sizes where kernels begin."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np

from rlxweb.ir.sample import Drawn
from rlxweb.ir.shape_arithmetic import Shape
from tests.engines_under_test import Array
from tests.ops.kernel_cases.case import kernel_case

FEW_VALUES = np.array([-inf, -1.0, -0.0, 0.0, 1.2e-38, 2.0, inf, nan], np.float32)
"""Without subnormal numbers, which a GPU may flush to 0."""
WINDOWS: dict[str, Any] = {"kernel": (3, 3), "strides": (2, 1), "pads": (1, 1, 1, 1)}


def ties_of_special_values(arrays: list[Array]) -> None:
    """Few values, each of which occurs many times."""
    arrays[0][...] = np.random.default_rng(3).choice(FEW_VALUES, arrays[0].shape)


def special_values_among_others(arrays: list[Array]) -> None:
    """Each value once, spread over the elements."""
    flat = arrays[0].reshape(-1)
    flat[:: flat.size // FEW_VALUES.size][: FEW_VALUES.size] = FEW_VALUES


OPERANDS: list[tuple[str, tuple[Shape | Drawn, ...], dict[str, Any]]] = [
    *(
        ("argsort", (shape,), {"axis": axis, "descending": descending})
        for shape, axis in (((2, 5000), 1), ((300, 3), 0), ((1, 70_001), 1))
        for descending in (False, True)
    ),
    ("argsort", (Drawn((3, 1000), "f64"),), {"axis": 1}),
    ("argsort", (Drawn((3, 1000), "f16"),), {"axis": 1}),
    *((op, ((2, 4, 40, 37),), WINDOWS) for op in ("max_pool", "max_pool_indices")),
    ("cumsum", ((3, 5000),), {"axis": 1}),
    ("cumsum", ((2, 70_001),), {"axis": -1, "exclusive": True}),
    ("log_softmax", ((40, 132),), {"axis": -1}),
    ("add_norm", ((40, 132), (40, 132), (132,), (132,)), {}),
    *((op, ((300, 700),), {}) for op in ("relu", "sigmoid", "erf")),
    *(
        ("fused_matmul_bias_act", ((40, 96), (96, 64), (64,)), {"activation": name})
        for name in (None, "relu", "gelu")
    ),
    *((op, ((2, 4, 40, 37),), WINDOWS) for op in ("avg_pool", "sum_pool", "lp_pool")),
]


def ties_of_scores(arrays: list[Array]) -> None:
    """Boxes of equal and of special scores."""
    ties_of_special_values(arrays[1:])


CASES = [
    kernel_case(
        "non_max_suppression",
        "ties of special scores",
        *((1, 600, 4), (1, 2, 600)),
        edit=ties_of_scores,
        max_output=50,
        score_threshold=-1.0,
    ),
    *(
        kernel_case(op, why, *operands, edit=edit, **attrs)
        for op, operands, attrs in OPERANDS
        for why, edit in (
            ("ties of special values", ties_of_special_values),
            ("special values among others", special_values_among_others),
        )
    ),
]
