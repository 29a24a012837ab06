"""Modules of `rlxweb/ops` that declare ops, methods or kernels are listed for loading.

The lists are written by hand, as their order counts and as a zip file or a frozen
program has no folder to search.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain

import pytest

from rlxweb.ops import OP_MODULES
from rlxweb.ops.kernel_variant import KERNEL_MODULES
from tests.cli_runners import ROOT

OPS = ROOT / "rlxweb" / "ops"


@pytest.mark.parametrize(
    ("declaration", "listed", "list_name"),
    [
        (
            r"^(registry\.register_all\(|@graph_method\b)",
            OP_MODULES,
            "OP_MODULES of rlxweb/ops/__init__.py",
        ),
        (
            r"^KERNELS\b",
            tuple(chain.from_iterable(KERNEL_MODULES.values())),
            "KERNEL_MODULES of rlxweb/ops/kernel_variant.py",
        ),
    ],
    ids=["ops and methods", "kernels"],
)
def test_every_module_that_declares_something_is_listed(
    declaration: str, listed: Collection[str], list_name: str
) -> None:
    """Otherwise nothing would load it, and its ops or kernels would be missing."""
    declaring = {
        ".".join(path.relative_to(OPS).with_suffix("").parts)
        for path in OPS.glob("*/**/*.py")
        if re.search(declaration, path.read_text("utf-8"), re.M)
    }
    missing = sorted(declaring - set(listed))
    assert not missing, f"add to {list_name}: {', '.join(missing)}"
    assert sorted(listed) == sorted(declaring), f"{list_name} lists too many, or twice"
