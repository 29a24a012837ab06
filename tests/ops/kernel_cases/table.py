"""All cases of the kernel agreement suite by op, and the strategies that draw more."""

from __future__ import annotations

from collections import defaultdict

import hypothesis.strategies as st

from tests.ops.kernel_cases import (
    attention,
    conv,
    matmul,
    moves,
    recurrent,
    rows,
    special_values,
    torch_oracle,
)
from tests.ops.kernel_cases.case import KernelCase

CASES_BY_OP: defaultdict[str, list[KernelCase]] = defaultdict(list)
for _module in (
    matmul,
    conv,
    attention,
    rows,
    moves,
    recurrent,
    special_values,
    torch_oracle,
):
    for _case in _module.CASES:
        CASES_BY_OP[_case.op].append(_case)

TORCH_CASES: defaultdict[str, list[KernelCase]] = defaultdict(list)
"""Cases that PyTorch judges too, by method and reason."""
for _case in torch_oracle.CASES:
    TORCH_CASES[_case.why].append(_case)

DRAWN_CASES: dict[str, st.SearchStrategy[KernelCase]] = {
    "matmul": matmul.drawn_cases(),
    "conv": conv.drawn_cases(),
    "attention": attention.drawn_cases(),
    "norms": rows.drawn_norms(),
    "topk": rows.drawn_searches(),
}
"""Name → strategy of further cases, of any size and geometry."""
