"""Recurrent networks: rows that end early, units that do not fill a vector."""

from __future__ import annotations

from typing import Any

from rlxweb.ir.sample import Drawn
from tests.engines_under_test import Array
from tests.ops.kernel_cases.case import kernel_case


def uneven_lengths(arrays: list[Array]) -> None:
    arrays[-1][...] = 0, 9, 2


def halved(*shape: int, dtype: str = "f32") -> Drawn:
    return Drawn(shape, dtype, low=-0.8, high=0.8)


BOTH_WAYS: dict[str, Any] = {"direction": "bidirectional"}
CASES = [
    *(
        kernel_case(
            "gru",
            f"rows that end early, {units} units",
            halved(5, 3, 6 * units),
            halved(2, units, 3 * units),
            halved(2, 3, units),
            Drawn((3,), "i32", 0, 9),
            edit=uneven_lengths,
            kernels=("gru, compiled", "gru, in arrays made once"),
            **BOTH_WAYS,
        )
        for units in (1, 3, 8, 17, 33)
    ),
    kernel_case(
        "gru",
        "weights that are packed once",
        *(halved(6, 1, 120), halved(2, 20, 60)),
        params=(1,),
        kernels="gru, compiled",
        **BOTH_WAYS,
    ),
    *(
        kernel_case(
            op,
            f"{dtype}, {units} units",
            halved(7, 3, gates * units, dtype=dtype),
            halved(1, units, gates * units, dtype=dtype),
            kernels=f"{op}, compiled" if dtype == "f32" else f"{op}, of halves",
        )
        for op, gates in (("lstm", 4), ("gru", 3), ("rnn", 1))
        for dtype in ("f32", "f16")
        for units in (5, 17)
    ),
]
