"""The lists of the tiers name what is there, and a mark that fits nothing is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tiers

TESTS = Path(tiers.__file__).parent


def test_the_paths_of_the_lists_are_there() -> None:
    starts = (*tiers.QUICK, *tiers.NOT_QUICK)
    assert [start for start in starts if not any(TESTS.glob(f"{start}*"))] == []


def item(**params: Any) -> Any:
    """A stand-in for a collected test that is `full` on OpenGL."""
    mark = pytest.mark.full("opengl").mark
    return SimpleNamespace(
        nodeid=f"test_a.py::test_x[{'-'.join(params.values())}]",
        callspec=SimpleNamespace(params=params, id="-".join(params.values())),
        iter_markers=lambda name: [mark],
    )


def test_a_parameter_of_full_that_no_case_has_is_told() -> None:
    """Else a name spelled wrong would leave its test in the default tier unnoticed."""
    tiers.check_marks([item(adapter="lavapipe"), item(adapter="opengl")])
    with pytest.raises(pytest.UsageError, match=r"test_x.*no case.*'opengl'"):
        tiers.check_marks([item(adapter="lavapipe"), item(adapter="gl")])


def test_a_test_is_named_by_any_form_of_its_path(tmp_path: Path) -> None:
    """A relative path, from any folder, and an absolute one name the same test."""
    path = tmp_path / "tests" / "test_a.py"
    for folder, words in (
        (tmp_path, ["tests/test_a.py::test_x", "./tests/test_a.py::test_x"]),
        (path.parent, ["test_a.py::test_x", f"{path}::test_x"]),
    ):
        for word in words:
            config: Any = SimpleNamespace(
                args=[word], invocation_params=SimpleNamespace(dir=folder)
            )
            named = tiers.named_tests(config)
            for name, is_named in (
                ("test_x", True),
                ("test_x[1]", True),
                ("test_x::test_in_a_class", True),
                ("test_xy", False),
            ):
                own: Any = SimpleNamespace(path=path, nodeid=f"tests/test_a.py::{name}")
                assert tiers.is_named(own, named) is is_named, (word, name)
